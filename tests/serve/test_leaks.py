"""Ten thousand sessions leak no threads, tasks, files or memory."""

import asyncio
import gc
import http.client
import json
import os
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.serve.running import Running, labs, running, talk, until

LANES = 4
WARM_UP, SESSIONS = 200, 2_450  # of one lane
SOCKETS = 50  # of one lane; each is one session
MAX_GROWTH = 12 * 2**20  # bytes; ten thousand leaked sessions would take many times that


class Resources(NamedTuple):
    threads: int
    tasks: int
    files: int


def resources(server: Running) -> Resources:
    gc.collect()
    tasks = asyncio.run_coroutine_threadsafe(_tasks(), server.loop).result(10)
    return Resources(threading.active_count(), tasks, len(os.listdir("/proc/self/fd")))


async def _tasks() -> int:
    return len(asyncio.all_tasks())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def over_http(server: Running, id: str, sessions: int) -> None:
    """One connection, one session after another: reset, step, close."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)

    def post(path: str, body: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection.request("POST", f"/envs/{id}/{path}", body, headers)
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        reply.read()
        return reply

    for number in range(sessions):
        headers = {"X-Session-Id": post("reset", json.dumps({"seed": number}), {}).headers["x-session-id"]}
        post("step", '{"action": {"value": 0}, "request_id": "a"}', headers)
        post("snapshot", "{}", headers)
        post("close", "", headers)
    connection.close()


def over_sockets(server: Running, id: str, sessions: int) -> None:
    for _ in range(sessions):
        with server.ws(id) as connection:
            talk(connection, "reset")
            talk(connection, "step", {"value": 0})
            connection.send('{"type": "close"}')


def run_sessions(server: Running, sessions: int, sockets: int) -> None:
    with ThreadPoolExecutor(LANES) as lanes:
        tasks = [lanes.submit(over_http, server, "CartPole-v1", sessions - sessions // 10) for _ in range(LANES)]
        tasks += [lanes.submit(over_http, server, "Lab-v0", sessions // 10) for _ in range(LANES)]
        tasks += [lanes.submit(over_sockets, server, "CartPole-v1", sockets) for _ in range(LANES)]
        for task in tasks:
            task.result()
    until(lambda: len(server.app.sessions) == 0)


@pytest.fixture
def server(untyped: None) -> Iterator[Running]:
    with running("CartPole-v1", own=labs()) as started:
        yield started


@pytest.mark.slow
def test_ten_thousand_sessions_leak_nothing(server: Running):
    run_sessions(server, WARM_UP, 5)
    before, memory = resources(server), resident_bytes()
    run_sessions(server, SESSIONS, SOCKETS)
    assert LANES * (SESSIONS + SOCKETS) >= 10_000
    assert server.app.sessions.opened_count >= 10_000
    limits = before._replace(threads=before.threads + LANES + 1)  # one for each concurrent step, and the eraser's
    until(lambda: all(after <= limit for after, limit in zip(resources(server), limits, strict=True)))
    assert resident_bytes() - memory < MAX_GROWTH
