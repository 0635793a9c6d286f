"""Ten thousand sessions come and go, and nothing of them stays."""

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
MOST_GROWTH = 12 * 2**20  # bytes; ten thousand sessions that stayed would take many times that


class Held(NamedTuple):
    threads: int
    tasks: int
    files: int


def held(server: Running) -> Held:
    gc.collect()
    tasks = asyncio.run_coroutine_threadsafe(_tasks(), server.loop).result(10)
    return Held(threading.active_count(), tasks, len(os.listdir("/proc/self/fd")))


async def _tasks() -> int:
    return len(asyncio.all_tasks())


def resident() -> int:
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
        named = {"X-Session-Id": post("reset", json.dumps({"seed": number}), {}).headers["x-session-id"]}
        post("step", '{"action": {"value": 0}, "request_id": "a"}', named)
        post("snapshot", "{}", named)
        post("close", "", named)
    connection.close()


def over_sockets(server: Running, id: str, sessions: int) -> None:
    for _ in range(sessions):
        with server.ws(id) as connection:
            talk(connection, "reset")
            talk(connection, "step", {"value": 0})
            connection.send('{"type": "close"}')


def come_and_go(server: Running, sessions: int, sockets: int) -> None:
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
def test_ten_thousand_sessions_leave_nothing_behind(server: Running):
    come_and_go(server, WARM_UP, 5)
    before, memory = held(server), resident()
    come_and_go(server, SESSIONS, SOCKETS)
    assert LANES * (SESSIONS + SOCKETS) >= 10_000
    assert server.app.sessions.opened_count >= 10_000
    most = before._replace(threads=before.threads + LANES)  # as many as steps have run at once
    until(lambda: all(after <= limit for after, limit in zip(held(server), most, strict=True)))
    assert resident() - memory < MOST_GROWTH
