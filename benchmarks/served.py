"""Steps per second of a served echo, compared with OpenEnv's server, and of a served CartPole, beside our echo.

One load generator drives all of them in turns."""

import argparse
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import load
from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import RESULTS, Contender, processor, progress, row
from benchmarks.peers import REQUIREMENTS, ROOT, python_of
from benchmarks.table import rows_as_text

REQUIREMENTS["openenv"] = ("openenv==0.10.0", "requests==2.32.5")

SIZES = (1, 16, 64, 1_000)
STARTING = 60.0  # seconds

STEPS = Comparison(
    name="served",
    title="Steps per second of a served echo, by number of open sessions",
    case="served",
    sizes=SIZES,
    rivals=(Rival("openenv", "openenv", "served", {1: 2.7, 16: 6, 64: 8, 1_000: 9}),),
)
CPU = Comparison(
    name="served_cpu",
    title="CPU time of the server per step, by number of open sessions",
    case="served",
    sizes=SIZES,
    unit="µs/step",
    rivals=(Rival("openenv", "openenv", "served", {1: 0.28, 16: 0.14, 64: 0.11, 1_000: 0.1}),),
)

CARTPOLE_STEPS = Comparison(
    name="served_cartpole",
    title="Steps per second of a served CartPole-v1, by number of open sessions",
    case="served",
    sizes=SIZES,
    rivals=(Rival("our echo", "tropism", "served"),),
)
ECHO = load.frame('{"type":"step","data":{"message":"hello"}}'), b'"echoed_message":"hello"'
CARTPOLE = load.frame('{"type":"step","data":{"value":1}}'), b'"done":false'
ENDLESS = ("theta_threshold=1e30", "x_threshold=1e30", "max_steps=1000000000")  # no reset among the measured steps


@dataclass(frozen=True)
class Server:
    """A running server, the address of its environment, and a step with a part of the reply to it."""

    label: str
    process: int
    port: int
    path: str
    step: tuple[bytes, bytes] = ECHO


@contextmanager
def running(label: str, command: list[str], port: int, path: str, checkout: Path = ROOT) -> Iterator[Server]:
    with TemporaryDirectory() as state:  # for our journal
        paths = os.pathsep.join([str(checkout), str(checkout / "src")])
        environment = {**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": state}
        child = subprocess.Popen(command, env=environment, cwd=checkout, stdout=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield Server(label, child.pid, port, path)
        finally:
            child.terminate()
            child.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"no server on port {port}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve_command(port: int) -> list[str]:
    return [sys.executable, "-m", "tropism", "serve", "Echo-v0", "--port", str(port)]


def cartpole_command(port: int) -> list[str]:
    params = [word for param in ENDLESS for word in ("--param", param)]
    return [sys.executable, "-m", "tropism", "serve", "CartPole-v1", "--port", str(port), *params]


@contextmanager
def cartpole_server() -> Iterator[Server]:
    port = free_port()
    with running("tropism CartPole", cartpole_command(port), port, "/envs/CartPole-v1/ws") as server:
        yield replace(server, step=CARTPOLE)


@contextmanager
def both_servers() -> Iterator[tuple[Server, Server]]:
    ours, theirs = free_port(), free_port()
    serve = serve_command(ours)
    peer = [python_of("openenv"), str(ROOT / "benchmarks" / "workers" / "openenv_server.py"), str(theirs)]
    with (
        running("tropism", serve, ours, "/envs/Echo-v0/ws") as first,
        running("openenv", peer, theirs, "/ws") as second,
    ):
        yield first, second


@dataclass
class Measurement:
    """Measurements of one server at one size, one value per repeat."""

    rates: list[float]
    times: list[float]
    bytes_per_session: float = 0.0
    threads: int = 0


def open_sessions(server: Server, size: int) -> tuple[list[load.Session], Measurement]:
    before = load.resident_bytes(server.process)
    sessions = [load.open_session(server.port, server.path) for _ in range(size)]
    bytes_per_session = (load.resident_bytes(server.process) - before) / size
    return sessions, Measurement([], [], bytes_per_session, load.threads(server.process))


def measure(servers: Sequence[Server], size: int, repeats: int, seconds: float) -> list[Measurement]:
    held = [open_sessions(server, size) for server in servers]
    for repeat in range(repeats + 1):  # the first is warm-up
        progress(f"served {size:,}: repeat {repeat} of {repeats}")
        for server, (sessions, measurement) in zip(servers, held, strict=True):
            before = load.cpu_seconds(server.process)
            steps, elapsed = load.drive(sessions, *server.step, seconds)
            if repeat:
                measurement.rates.append(steps / elapsed)
                measurement.times.append(1e6 * (load.cpu_seconds(server.process) - before) / steps)
    for sessions, _ in held:
        for session in sessions:
            session.socket.close()
    return [measurement for _, measurement in held]


def make_result(comparison: Comparison, rows: list[dict[str, Any]], repeats: int) -> dict[str, Any]:
    return {
        "name": comparison.name,
        "title": comparison.title,
        "unit": comparison.unit,
        "repeats": repeats,
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"},
        "versions": {"python": platform.python_version(), "tropism": version("tropism"), "openenv": "0.10.0"},
        "rows": rows,
        "skipped": {},
    }


def store(result: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result['name']}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    rates: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    poles: list[dict[str, Any]] = []
    for size in args.sizes:
        with both_servers() as servers, cartpole_server() as third:
            ours, theirs, pole = measure((*servers, third), size, args.repeats, args.seconds)
        rival = Contender("openenv", None, {}, STEPS.rivals[0])  # pyright: ignore[reportArgumentType]
        rates.append(row(STEPS, size, rival, ours.rates, theirs.rates))
        rival = Contender("openenv", None, {}, CPU.rivals[0])  # pyright: ignore[reportArgumentType]
        times.append(row(CPU, size, rival, ours.times, theirs.times))
        rival = Contender("our echo", None, {}, CARTPOLE_STEPS.rivals[0])  # pyright: ignore[reportArgumentType]
        poles.append(row(CARTPOLE_STEPS, size, rival, pole.rates, ours.rates))
        for label, measurement in (("tropism", ours), ("openenv", theirs), ("tropism CartPole", pole)):
            kilobytes = measurement.bytes_per_session / 1024
            progress(f"{label}: {kilobytes:.1f} KB per session, {measurement.threads} threads")
    for comparison, rows in ((STEPS, rates), (CPU, times), (CARTPOLE_STEPS, poles)):
        result = make_result(comparison, rows, args.repeats)
        store(result, args.results)
        print(rows_as_text(result))


if __name__ == "__main__":
    main()
