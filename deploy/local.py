"""Start Postgres, workers that share it, and nginx on this machine; Ctrl-C stops them.

Example: python deploy/local.py CartPole-v1 Echo-v0 --workers 2 --port 8000
"""

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection
from tempfile import mkdtemp

TEMPLATE = Path(__file__).with_name("workers.conf.template")
START_SECONDS = 60.0
STOP_SECONDS = 30.0
CHECK_SECONDS = 0.2  # between two looks at the workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="environments to serve; all if none is given")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--port", type=int, default=8000, help="of nginx; workers and Postgres use the ports after it")
    parser.add_argument("--folder", type=Path, help="keeps the database; by default it is deleted at the end")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds until a crashed worker's sessions continue")
    args = parser.parse_args()
    programs, nginx = postgres_programs(), _nginx()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background programs with SIGINT ignored
    with ExitStack() as stack:
        folder = stack.enter_context(open_folder(args.folder))
        first = args.port + 1
        url = stack.enter_context(postgres(programs, folder, first + args.workers))
        options = ["--journal", url, "--lease", str(args.lease)]
        ports = range(first, first + args.workers)
        command = [sys.executable, "-m", "tropism", "serve", *args.ids, *options]
        workers = [stack.enter_context(Worker([*command, "--port", str(port)], port)) for port in ports]
        for worker in workers:
            worker.wait()
        stack.enter_context(_proxy(nginx, folder, args.port, ports))
        print(f"serving at http://127.0.0.1:{args.port} (Ctrl-C stops)", flush=True)
        print(f"postgres: {url}", flush=True)
        try:
            _supervise(workers)
        except KeyboardInterrupt:
            print("stopping", flush=True)


class Worker:
    """A server process, which is started again when it ends."""

    def __init__(self, command: list[str], port: int):
        self._command = command
        self.address = f"http://127.0.0.1:{port}"
        self.process = _start(command)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        _stop(self.process, signal.SIGTERM)

    def wait(self) -> None:
        """Return when the server accepts requests."""
        _wait_until(lambda: _is_ready(self.address), self.process, "the worker")
        print(f"worker {self.process.pid}: {self.address}", flush=True)

    def restart_if_ended(self) -> None:
        if self.process.poll() is not None:
            print(f"worker {self.process.pid} ended ({self.process.returncode}); starting another", flush=True)
            self.process = _start(self._command)
            self.wait()


def _supervise(workers: list[Worker]) -> None:
    while True:
        time.sleep(CHECK_SECONDS)
        for worker in workers:
            worker.restart_if_ended()


def postgres_programs() -> Path:
    found = shutil.which("initdb")
    folders = (
        [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    if not folders:
        sys.exit("Postgres is not installed (Debian: apt-get install postgresql)")
    return folders[0]


def _nginx() -> str:
    return shutil.which("nginx") or sys.exit("nginx is not installed (Debian: apt-get install nginx-light)")


@contextmanager
def open_folder(given: Path | None) -> Iterator[Path]:
    """The given folder, or a temporary one, which is deleted at the end."""
    folder = given.absolute() if given else Path(mkdtemp(prefix="tropism-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if given is None:
            shutil.rmtree(folder)


@contextmanager
def postgres(programs: Path, folder: Path, port: int) -> Iterator[str]:
    """A database server; yields its address."""
    user, data = _database_user(), folder / "data"
    if user is not None:
        shutil.chown(folder, user)
    if not data.exists():
        create = [str(programs / "initdb"), "-D", str(data), "-U", "tropism", "-A", "trust", "-E", "UTF8"]
        subprocess.run(create, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    log = folder / "postgres.log"
    server = _start([str(programs / "postgres"), "-D", str(data), *options], log, user)
    try:
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-U", "tropism"]
        _wait_until(lambda: subprocess.run(ready).returncode == 0, server, "Postgres", log)
        yield f"postgresql://tropism@127.0.0.1:{port}/postgres"
    finally:
        _stop(server, signal.SIGINT)


def _database_user() -> str | None:
    """Postgres refuses to run as root: the name of another user, if this process is root's."""
    if os.geteuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@contextmanager
def _proxy(nginx: str, folder: Path, port: int, ports: range) -> Iterator[None]:
    servers = " ".join(f"server 127.0.0.1:{each} max_fails=1 fail_timeout=1s;" for each in ports)
    sites = TEMPLATE.read_text().replace("${PORT}", f"127.0.0.1:{port}").replace("${WORKERS}", servers)
    paths = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; pid {folder}/nginx.pid; error_log stderr warn; events {{ worker_connections 4096; }}"
    (folder / "nginx.conf").write_text(f"{main}\nhttp {{\n{paths}{sites}}}\n")
    command = [nginx, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
    started = _start(command)
    try:
        _wait_until(lambda: _accepts(port), started, "nginx")
        yield
    finally:
        _stop(started, signal.SIGTERM)


def _start(command: list[str], log: Path | None = None, user: str | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C does not end the database before the workers."""
    errors, folder = (None, None) if log is None else (log.open("ab"), log.parent)
    return subprocess.Popen(
        command, user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
    )


def _stop(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(number)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: Path | None = None
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        messages = "" if log is None else f":\n{log.read_text()}"
        if process.poll() is not None:
            sys.exit(f"{name} ended with exit code {process.returncode}{messages}")
        if time.monotonic() > deadline:
            sys.exit(f"{name} did not start in {START_SECONDS:.0f} s{messages}")
        time.sleep(0.05)


def _accepts(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _is_ready(address: str) -> bool:
    try:
        return urllib.request.urlopen(f"{address}/ready", timeout=2).status == 200
    except (OSError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    main()
