"""The files in deploy/, the root path, readiness, and a server that drains."""

import configparser
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.replies import assert_refused
from tests.serve.running import Running, labs, process, running, talk, until
from websockets.sync.client import connect

from tropism import ValidationError
from tropism.cli.serve import serve
from tropism.serve.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
HOST = "environments.example"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def nginx(server: Running, folder: Path) -> Generator[str]:
    """nginx with our configuration and a certificate of our own in front of a server; yields its address."""
    key, certificate, port = folder / "key.pem", folder / "certificate.pem", free_port()
    subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST},IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *files, *subject]
    subprocess.run(command, check=True, capture_output=True)
    text = (DEPLOY / "nginx.conf").read_text().replace("listen 443", f"listen 127.0.0.1:{port}")
    text = re.sub(r"/etc/ssl/certs/\S+(?=;)", str(certificate), text)
    text = re.sub(r"/etc/ssl/private/\S+(?=;)", str(key), text).replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
    paths = "".join(f"{name}_temp_path {folder};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    whole = f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\nhttp {{ {paths} access_log off; {text} }}"
    (folder / "nginx.conf").write_text(whole)
    started = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        until(lambda: _listens(port))
        yield f"https://127.0.0.1:{port}/tropism"
    finally:
        started.terminate()
        started.wait(10)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def caddy(server: Running, folder: Path) -> Generator[str]:
    """Caddy with our configuration and a certificate of its own authority in front of a server; yields its address."""
    port = free_port()
    options = f"{{\n admin off\n skip_install_trust\n auto_https disable_redirects\n storage file_system {folder}\n}}\n"
    text = (DEPLOY / "Caddyfile").read_text().replace(f"{HOST} {{", f"{HOST}:{port} {{\n\ttls internal")
    (folder / "Caddyfile").write_text(options + text.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}"))
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(command, stderr=log, env=os.environ | {"XDG_CONFIG_HOME": str(folder)})
    authority, certificate = folder / "pki/authorities/local/root.crt", folder / "certificate.pem"
    try:
        until(lambda: _listens(port) and authority.exists())
        shutil.copy(authority, certificate)
        yield f"https://{HOST}:{port}/tropism"
    finally:
        started.terminate()
        started.wait(10)
    assert "/agent/" not in (folder / "log").read_text()


def play_through(url: str, trust: ssl.SSLContext) -> None:
    """Use the HTTP interface, the page and a socket behind a proxy; the host's name is not that of an address here."""
    port = int(url.split(":")[2].partition("/")[0])
    address, named = url.replace(HOST, "127.0.0.1"), {"sni_hostname": HOST}
    with httpx.Client(base_url=address, verify=trust, headers={"Host": HOST}, trust_env=False) as caller:

        def send(method: str, path: str, **arguments: Any) -> httpx.Response:
            return caller.send(caller.build_request(method, path, extensions=named, **arguments))

        def is_ready() -> bool:
            with suppress(httpx.ConnectError):  # Caddy has no certificate yet
                return send("GET", "/ready").status_code == 200
            return False

        until(is_ready)
        begun = send("POST", "/envs/Echo-v0/reset", json={"seed": 1})
        assert "Path=/tropism/envs/Echo-v0;" in begun.headers["set-cookie"]
        assert send("POST", "/envs/Echo-v0/step", json={"action": {"message": "hi"}}).json()["done"] is False
        assert send("GET", f"/agent/{begun.json()['agent_id']}/observation").json()["step_count"] == 1
        assert 'href="/tropism/page/style.css"' in send("GET", "/").text
        assert send("GET", "/page/app.js").status_code == 200
        assert send("GET", "/openapi.json").json()["servers"] == [{"url": "/tropism"}]
    there = socket.create_connection(("127.0.0.1", port))
    socket_address = f"wss://{HOST}:{port}/tropism/envs/Echo-v0/ws"
    with connect(socket_address, ssl=trust, sock=there, proxy=None) as connection:
        talk(connection, "reset")
        assert talk(connection, "step", {"message": "hi"})["data"]["observation"]["echoed_message"] == "hi"


PROXIES = {"nginx": (nginx, "nginx-light"), "caddy": (caddy, "caddy")}


@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_serves_http_and_sockets_over_tls_below_a_path(tmp_path: Path, name: str):
    proxy, package = PROXIES[name]
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (apt-get install {package})")
    with running("Echo-v0", root_path="/tropism", allowed_hosts=(HOST,)) as server, proxy(server, tmp_path) as url:
        play_through(url, ssl.create_default_context(cafile=tmp_path / "certificate.pem"))


def test_a_proxy_may_leave_the_root_path_in_requests():
    with running("Echo-v0", root_path="/tropism") as server, server.http() as caller:
        for path in ("/tropism/envs/Echo-v0", "/envs/Echo-v0", "/tropism"):
            assert caller.post(f"{path}/reset", json={}).status_code == 200
        assert_refused(caller.get("/tropisms/health"), "NOT_FOUND")
    for wrong in ("tropism", "/tropism/", "/"):
        with pytest.raises(ValidationError, match="root_path"):
            Settings(root_path=wrong)


def test_a_server_is_ready_until_it_stops():
    with running(own=labs(), tokens=("secret",)) as server, server.http() as caller:
        assert caller.get("/ready").json() == {"status": "ready"}
        server.app.sessions.stopping = True
        assert_refused(caller.get("/ready"), "STOPPING")
        assert caller.get("/health").status_code == 200


def test_a_stopping_server_answers_running_steps(tmp_path: Path):
    arguments = ("-m", "tropism", "serve", "tests.serve.lab:Lab", "--port", "0", "--log-level", "info")
    with process(*arguments) as (server, url), httpx.Client(base_url=url, trust_env=False) as caller:
        caller.post("/reset", json={"seed": 1})
        with ThreadPoolExecutor(1) as thread:
            step = thread.submit(caller.post, "/step", json={"action": {"value": 4}}, timeout=30)  # sleeps
            until(lambda: 'type="reset"' in httpx.get(f"{url}/metrics", trust_env=False).text)
            time.sleep(0.5)  # the step is running
            os.kill(server.pid, signal.SIGTERM)
            assert step.result().json()["reward"] == 1.0
        assert server.wait(30) == -signal.SIGTERM  # by the signal itself, which systemd takes for success
        assert server.stderr is not None
        for line in server.stderr.read().splitlines():
            assert {"time", "level", "message"} <= set(json.loads(line))


def test_the_unit_of_systemd_starts_a_command_that_exists():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # pyright: ignore
    unit.read(DEPLOY / "tropism.service")
    command = unit["Service"]["ExecStart"].split()
    options = {word for word in command if word.startswith("--")}
    known = {"--" + name.replace("_", "-") for name in serve.__annotations__}
    assert command[1] == "serve"
    assert options <= known


def test_the_proxies_agree_with_each_other():
    """Both serve the same path from the same address, and never log an agent's path."""
    caddy, conf = ((DEPLOY / name).read_text() for name in ("Caddyfile", "nginx.conf"))
    for text in (caddy, conf):
        assert "127.0.0.1:8000" in text
        assert "/tropism/" in text
        assert HOST in text
    assert "access_log off" in conf
    assert "log" not in caddy.partition("{")[2]
