"""Limits that protect the server and its other callers."""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import pytest
from tests.faults.journals import echo
from tests.serve.drawer import drawer
from tests.serve.lab import Lab
from tests.serve.replies import assert_error, assert_refused
from tests.serve.requests import TOKENS, bearer
from tests.serve.running import Running, labs, running, talk, until

from tropism.core.adapters.class_based import AgentEnvironment, adapt
from tropism.core.host import Host
from tropism.serve.http.connection import MAX_HEAD
from tropism.serve.server import JsonFormatter
from tropism.serve.session.environment import THREAD_NAME_PREFIX, ServedEnvironment
from tropism.serve.session.requests import FEW_VALUES
from tropism.serve.settings import owner_of
from tropism.serve.storage.working_memory import SessionLimits
from tropism.wire.limits import MAX_CONTAINERS, MAX_EXTREME_FLOATS
from tropism.wire.messages import Action, Observation

CLOSED_WITHIN = 15.0  # seconds; the server closes after 5


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0") as server:
        yield server


def exchange(server: Running, request: bytes) -> bytes:
    with server.raw() as connection:
        connection.sendall(request)
        with suppress(TimeoutError, ConnectionError):
            return connection.recv(65536)
    return b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * MAX_HEAD + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * MAX_HEAD,
        b"GET /health?" + b"x" * MAX_HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 12_000 + b"\r\n",
    ],
    ids=["header", "unfinished", "url", "many"],
)
def test_large_headers_are_refused(server: Running, head: bytes):
    assert exchange(server, head).startswith(b"HTTP/1.1 431 ")
    with server.http() as caller:
        assert caller.get("/health").status_code == 200


def test_large_headers_are_counted_for_each_request(server: Running):
    with server.http() as caller:
        for _ in range(4):
            assert caller.get("/health", headers={"X": "x" * (MAX_HEAD // 2)}).status_code == 200


def test_several_host_headers_are_refused(server: Running):
    reply = exchange(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ")


@pytest.mark.slow
def test_an_unread_body_closes_the_connection(server: Running):
    with server.raw() as connection:
        connection.sendall(b"POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\nx")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
        assert server.app.sockets.used == 1
        connection.settimeout(CLOSED_WITHIN)
        with suppress(ConnectionError):
            assert connection.recv(4096) == b""
    until(lambda: server.app.sockets.used == 0)


def test_unread_bodies_count_towards_the_sockets():
    with running("Echo-v0", max_sockets=1) as server, server.ws(), server.raw() as connection:
        connection.sendall(b"POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\nx")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
        with suppress(ConnectionError):
            assert connection.recv(4096) == b"", "closed at once"


def test_the_bytes_of_an_episode_are_limited():
    with (
        running("Echo-v0", session_limits=SessionLimits(max_episode_bytes=10_000)) as server,
        server.ws() as connection,
    ):
        talk(connection, "reset")
        for _ in range(3):
            echo(connection, "x" * 3000)
        assert_error(echo(connection, "x" * 3000), "QUOTA_REACHED")
        talk(connection, "reset")
        assert echo(connection, "x" * 3000)["data"]["step_count"] == 1


def test_the_bytes_of_a_token_are_limited():
    with running("Echo-v0", tokens=TOKENS, max_bytes_per_token=10_000) as server:
        first, second = (server.ws(additional_headers=bearer(token)) for token in TOKENS)
        again = server.ws(additional_headers=bearer(TOKENS[0]))
        with first, second, again:
            for connection in (first, second, again):
                talk(connection, "reset")
            for _ in range(3):
                echo(first, "x" * 3000)
            assert_error(echo(again, "x" * 3000), "QUOTA_REACHED")
            assert echo(second, "x" * 3000)["data"]["step_count"] == 1
            talk(first, "reset")
            assert echo(again, "x" * 3000)["data"]["step_count"] == 1


def test_uploads_count_towards_the_bytes_of_an_episode():
    limits = SessionLimits(max_episode_bytes=10_000)
    with running(own=drawer(), session_limits=limits) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        for _ in range(3):
            assert caller.put("/files/a", content=b"x" * 2000).json()["size"] == 2000
        assert_refused(caller.put("/files/a", content=b"y" * 2000), "QUOTA_REACHED")
        assert caller.get("/files/a").content == b"x" * 2000, "unchanged"
        caller.post("/reset", json={"seed": 1})
        assert caller.put("/files/a", content=b"x" * 2000).status_code == 200


def test_uploads_and_forks_count_towards_the_bytes_of_a_token():
    with running(own=drawer(), max_bytes_per_token=10_000) as server, server.http() as caller, server.http() as other:
        for each in (caller, other):
            each.post("/reset", json={"seed": 1})
        for _ in range(2):
            assert caller.put("/files/a", content=b"x" * 2000).status_code == 200
        assert_refused(other.put("/files/a", content=b"x" * 6000), "QUOTA_REACHED")
        assert_refused(other.put("/files/a", content=b"x" * 4000), "QUOTA_REACHED")
        assert other.put("/files/a", content=b"x" * 1000).status_code == 200
        assert_refused(caller.post("/fork", json={}), "QUOTA_REACHED")
        assert other.post("/fork", json={}).status_code == 200


def test_at_capacity_the_idlest_session_is_evicted():
    with running("Echo-v0", max_sessions=2) as server, server.ws() as attached:
        talk(attached, "reset")
        sessions: list[str] = []
        with server.http() as caller:
            for seed in range(3):
                caller.cookies.clear()
                sessions.append(caller.post("/reset", json={"seed": seed}).json()["session_id"])
            for session in sessions:  # each can be resumed
                step = {"action": {"message": "a"}}
                reply = caller.post("/step", json=step, headers={"X-Session-Id": session})
                assert reply.json()["step_count"] == 1
        assert echo(attached)["data"]["step_count"] == 1
        with server.ws() as other, server.ws() as third:
            talk(other, "reset")
            assert_error(talk(third, "reset"), "CAPACITY_REACHED")


def test_an_admin_does_not_evict_the_sessions_of_other_tokens():
    settings: dict[str, Any] = {"tokens": TOKENS[:1], "admin_token": TOKENS[1], "max_sessions": 1}
    with running("Echo-v0", **settings) as server, server.http() as caller:
        caller.post("/reset", json={}, headers=bearer(TOKENS[0]))
        caller.cookies.clear()
        assert_refused(caller.post("/reset", json={}, headers=bearer(TOKENS[1])), "CAPACITY_REACHED")


class Heavy(Lab):
    """Two of its sessions take half of the machine's memory."""

    host: ClassVar[Host | None] = Host(session_memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)


def test_without_memory_the_idlest_session_of_the_token_is_evicted():
    env = Heavy()
    heavy = {"Heavy-v0": ServedEnvironment("Heavy-v0", env, env.default_params(), "A test's own.")}
    with running("Echo-v0", own=heavy, tokens=TOKENS) as server:
        with server.http("Echo-v0", headers=bearer(TOKENS[0])) as other:
            other.post("/reset", json={})
            with server.http("Heavy-v0", headers=bearer(TOKENS[0])) as caller:
                sessions: list[str] = []
                for seed in range(3):
                    caller.cookies.clear()
                    sessions.append(caller.post("/reset", json={"seed": seed}).json()["session_id"])
                for session in sessions:  # each can be resumed
                    reply = caller.post("/step", json={"action": {"value": 0}}, headers={"X-Session-Id": session})
                    assert reply.json()["step_count"] == 1
            rows = server.app.sessions.rows(owner_of(TOKENS[0]))["sessions"]
            assert sorted(row["environment"] for row in rows) == ["Echo-v0", "Heavy-v0", "Heavy-v0"]
        with server.http("Heavy-v0", headers=bearer(TOKENS[1])) as stranger:
            assert_refused(stranger.post("/reset", json={}), "CAPACITY_REACHED")


def test_evicted_sessions_do_not_count_towards_the_bytes_of_a_token():
    with running("Echo-v0", max_bytes_per_token=10_000) as server, server.http() as caller, server.ws() as other:
        session = caller.post("/reset", json={}).json()["session_id"]
        caller.post("/step", json={"action": {"message": "x" * 6000}})
        talk(other, "reset")
        assert_error(echo(other, "x" * 6000), "QUOTA_REACHED")

        async def evict() -> None:
            sessions = server.app.sessions
            await sessions.evict(await sessions.find(session, None, None))

        asyncio.run_coroutine_threadsafe(evict(), server.loop).result(30)
        assert echo(other, "x" * 6000)["data"]["step_count"] == 1


def test_the_sessions_of_other_tokens_are_not_evicted():
    with running("Echo-v0", tokens=TOKENS, max_sessions=1) as server, server.http() as caller:
        caller.post("/reset", json={}, headers=bearer(TOKENS[0]))
        caller.cookies.clear()
        assert_refused(caller.post("/reset", json={}, headers=bearer(TOKENS[1])), "CAPACITY_REACHED")


def test_a_session_that_cannot_be_resumed_is_not_evicted():
    with running(own=labs(), max_sessions=1) as server, server.http("Unwritable-v0") as caller:
        caller.post("/reset", json={"seed": 1})
        caller.cookies.clear()
        assert_refused(caller.post("/reset", json={"seed": 1}), "CAPACITY_REACHED")


def test_session_ids_are_not_logged(caplog: pytest.LogCaptureFixture):
    with running(own=labs()) as server, caplog.at_level(logging.DEBUG), server.http("Lab-v0") as caller:
        session = caller.post("/reset", json={"seed": 1}).json()["session_id"]
        caller.post(f"/s/{session}/step", json={"action": {"value": 2}})  # raises
        lines = [JsonFormatter().format(record) for record in caplog.records if record.name.startswith("tropism")]
    assert any(json.loads(line).get("session") for line in lines)
    assert not [line for line in lines if session in line]


def test_initialize_keeps_nothing(server: Running):
    parameters: dict[str, Any] = {"protocolVersion": "2025-03-26", "capabilities": {}}
    parameters["clientInfo"] = {"name": "test", "version": "1"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}
    headers = {"Accept": "application/json, text/event-stream"}
    with server.http() as caller:
        replies = [caller.post("/mcp", json=body, headers=headers) for _ in range(5)]
    assert {reply.status_code for reply in replies} == {200}
    assert not [reply for reply in replies if "mcp-session-id" in reply.headers]


def test_a_malformed_frame_is_answered(server: Running):
    with server.ws() as connection:
        talk(connection, "reset")
        for text, code in (('{"type": "st', "INVALID_JSON"), ('{"type": 3, "id": 7}', "VALIDATION_ERROR")):
            connection.send(text)
            frame = json.loads(connection.recv(10))
            assert_error(frame, code)
            assert frame.get("id") == (7 if code == "VALIDATION_ERROR" else None)
        assert echo(connection)["data"]["step_count"] == 1


@contextmanager
def decoded_texts(server: Running) -> Generator[list[int]]:
    """A list that gets an item for each call of msgspec's JSON decoder on the server's event loop."""
    calls: list[int] = []

    def profile(frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ == "decode" and isinstance(function.__self__, msgspec.json.Decoder):
            calls.append(1)

    async def set_profile(function: Any) -> None:
        sys.setprofile(function)

    asyncio.run_coroutine_threadsafe(set_profile(profile), server.loop).result(10)
    try:
        yield calls
    finally:
        asyncio.run_coroutine_threadsafe(set_profile(None), server.loop).result(10)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "step", "data": {"message": "inline"}}',
        '{"type": "step", "data": {"message": "' + "large" * 20_000 + '"}}',
        '{"type": "step", "data": {"message": [' + "1," * FEW_VALUES + "1]}}",
        '{"type": "history"}',
        '{"type": "fork", "data": {"from": {"step": 0}}}',
        '{"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}',
        '{"type": "unknown"}',
        '{"type": "st',
    ],
    ids=["inline", "large", "values", "history", "fork", "mcp", "unknown", "malformed"],
)
def test_a_frame_is_decoded_once(server: Running, text: str):
    with server.ws() as connection:
        talk(connection, "reset")
        with decoded_texts(server) as calls:
            connection.send(text)
            connection.recv(10)
        assert len(calls) == 1


@dataclass(frozen=True, kw_only=True)
class Numbers(Action):
    rows: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Place(Observation):
    thread: str = ""


class Placed(AgentEnvironment):
    """Replies with the thread that performs its step."""

    deterministic: ClassVar[bool] = True
    blocking = False

    def reset(self) -> Place:
        return Place()

    def step(self, action: Numbers) -> Place:
        return Place(thread=threading.current_thread().name)


def test_a_step_with_many_values_leaves_the_event_loop():
    env = adapt(Placed)
    own = {"Placed": ServedEnvironment("Placed", env, env.default_params(), "A test's own.")}
    with running(own=own) as server, server.ws() as connection:
        talk(connection, "reset")
        for rows, in_thread in (([[1.0] * 10], False), ([[1.0]] * FEW_VALUES, True), ([[1.0] * FEW_VALUES], True)):
            thread = talk(connection, "step", {"rows": rows})["data"]["observation"]["thread"]
            assert thread.startswith(THREAD_NAME_PREFIX) == in_thread


@pytest.mark.parametrize(("item", "count"), [("[]", MAX_CONTAINERS), ("1.5e300", MAX_EXTREME_FLOATS + 1)])
def test_a_frame_that_takes_long_to_decode_is_refused(server: Running, item: str, count: int):
    """`benchmarks.hostile` measures the time; large ordinary frames are in tests/wire/test_limits.py."""
    action = '{"message": [' + ",".join([item] * count) + "]}"
    with server.ws() as connection:
        talk(connection, "reset")
        connection.send(f'{{"type": "step", "data": {action}}}')
        assert_error(json.loads(connection.recv(10)), "INVALID_JSON")
        assert echo(connection)["data"]["step_count"] == 1
    with server.http() as caller:
        caller.post("/reset", json={})
        assert_refused(caller.post("/step", content=f'{{"action": {action}}}'), "INVALID_JSON")
