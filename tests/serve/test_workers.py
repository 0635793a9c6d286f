"""Two workers behind nginx on one Postgres, as deploy/local.py starts them: routing, handing over, stopping."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from tests.serve.running import talk
from tests.serve.storage.postgres import programs
from websockets.sync.client import connect

from tropism import Session, make

ID = "Pendulum-v1"
LOCAL = Path(__file__).parents[2] / "deploy" / "local.py"
LEASE = 600  # seconds: no lease ends during a test
PORTS = 4  # of nginx, two workers and Postgres
BODY = {"action": {"value": [1.0]}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed (apt-get install nginx-light)"),
    pytest.mark.skipif(programs() is None, reason="Postgres is not installed (Debian: postgresql)"),
]


class Deployment(NamedTuple):
    """The addresses of nginx and of the workers, and the ids of the workers' processes."""

    proxy: str
    workers: list[str]
    processes: list[int]

    def step_counts(self) -> list[int]:
        """The steps that each worker has performed."""
        texts = [httpx.get(f"{worker}/metrics").text for worker in self.workers]
        return [sum(map(int, re.findall(r'requests_total\{type="[^"]*step"\} (\d+)', text))) for text in texts]

    def sharing(self, act: Callable[[], object], times: int) -> list[int]:
        """How many of some steps each worker performs."""
        before = self.step_counts()
        for _ in range(times):
            act()
        return [after - earlier for earlier, after in zip(before, self.step_counts(), strict=True)]


def free_ports(count: int) -> int:
    """The first of several consecutive free ports; processes of parallel tests search in different places."""
    for first in range(21_000 + os.getpid() * 4 * count % 10_000, 60_000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """Stops as by Ctrl-C, and leaves nothing behind."""
    port = free_ports(PORTS)
    command = [sys.executable, str(LOCAL), ID, "--port", str(port), "--lease", str(LEASE)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    workers: list[tuple[str, int]] = []
    for line in started.stdout:
        if match := re.match(r"worker (\d+): (\S+)", line):
            workers.append((match[2], int(match[1])))
        if match := re.match(r"serving at (\S+)", line):
            yield Deployment(match[1], [url for url, _ in workers], [process for _, process in workers])
            break
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)
    assert started.returncode == 0
    for each in range(port, port + PORTS):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", each)) != 0


def begin(url: str) -> dict[str, str]:
    """The ids of a session."""
    reply = httpx.post(f"{url}/reset", json={"seed": 1})
    assert reply.status_code == 200, reply.text
    return reply.json()


def expected_values(count: int) -> list[list[float]]:
    session = Session(*make(ID))
    session.reset(seed=1)
    return [session.step([1.0]).obs.tolist() for _ in range(count)]


def test_a_session_stays_with_one_worker_however_it_is_named(deployment: Deployment):
    ids, url = begin(deployment.proxy), deployment.proxy
    id = ids["session_id"]
    ways: dict[str, Callable[[], httpx.Response]] = {
        "header": lambda: httpx.post(f"{url}/step", json=BODY, headers={"X-Session-Id": id}),
        "path": lambda: httpx.post(f"{url}/envs/{ID}/s/{id}/step", json=BODY),
        "cookie": lambda: httpx.post(f"{url}/step", json=BODY, headers={"Cookie": f"a=b; tropism.{ID}={id}"}),
    }
    shares = {way: deployment.sharing(lambda act=act: act().raise_for_status(), 3) for way, act in ways.items()}
    assert sorted(shares["header"]) == [0, 3]
    assert shares == dict.fromkeys(ways, shares["header"])

    def act_on_socket() -> None:
        with connect(f"{url.replace('http', 'ws')}/ws?session_id={id}", proxy=None) as connection:
            assert talk(connection, "step", {"value": [1.0]})["type"] == "observation"

    assert deployment.sharing(act_on_socket, 3) == shares["header"]
    agent = f"{url}/agent/{ids['agent_id']}/step"
    assert sorted(deployment.sharing(lambda: httpx.post(agent, json=BODY).raise_for_status(), 3)) == [0, 3]


def test_sessions_are_spread_over_the_workers(deployment: Deployment):
    def play() -> None:
        headers = {"X-Session-Id": begin(deployment.proxy)["session_id"]}
        httpx.post(f"{deployment.proxy}/step", json=BODY, headers=headers).raise_for_status()

    assert 0 not in deployment.sharing(play, 12)


def test_a_live_session_is_handed_over_to_the_worker_that_is_asked(deployment: Deployment):
    """Long before the lease ends, as if the proxy sent the first step elsewhere than the reset."""
    headers = {"X-Session-Id": begin(deployment.workers[0])["session_id"]}
    urls = deployment.workers * 3
    replies = [httpx.post(f"{url}/step", json=BODY, headers=headers).json() for url in urls]
    assert [reply["step_count"] for reply in replies] == [1, 2, 3, 4, 5, 6]
    assert [reply["observation"]["value"] for reply in replies] == expected_values(6)


def test_a_socket_continues_after_its_session_was_used_elsewhere(deployment: Deployment):
    first, second = deployment.workers
    with connect(f"{first.replace('http', 'ws')}/ws", proxy=None) as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        talk(connection, "step", {"value": [1.0]})
        assert httpx.post(f"{second}/step", json=BODY, headers={"X-Session-Id": id}).json()["step_count"] == 2
        assert talk(connection, "step", {"value": [1.0]})["data"]["step_count"] == 3


def test_an_agent_acts_through_any_worker(deployment: Deployment):
    first, second = deployment.workers
    ids = begin(first)
    for number, url in enumerate((second, first, second), 1):
        step = httpx.post(f"{url}/agent/{ids['agent_id']}/step", json=BODY)
        assert (step.status_code, step.json()["step_count"]) == (200, number)
    step = httpx.post(f"{first}/step", json=BODY, headers={"X-Session-Id": ids["session_id"]})
    assert step.json()["step_count"] == 4
    assert httpx.post(f"{second}/agent/unknown/step", json=BODY).status_code == 404


def test_another_worker_continues_while_one_restarts(deployment: Deployment):
    headers = {"X-Session-Id": begin(deployment.proxy)["session_id"]}
    values: list[list[float]] = []
    before = deployment.step_counts()
    for number in range(4):
        deadline = time.monotonic() + 60
        while (reply := _step(deployment.proxy, headers, number)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        values.append(reply.json()["observation"]["value"])
        if number == 1:
            holder = [count > earlier for earlier, count in zip(before, deployment.step_counts(), strict=True)].index(
                True
            )
            os.kill(deployment.processes[holder], signal.SIGTERM)
    assert values == expected_values(4)


def _step(url: str, headers: dict[str, str], number: int) -> httpx.Response | None:
    """One step; None if it has to be repeated."""
    reply = httpx.post(f"{url}/step", json=BODY | {"request_id": str(number)}, headers=headers, timeout=30)
    assert reply.status_code in (200, 502, 503), reply.text
    return reply if reply.status_code == 200 else None
