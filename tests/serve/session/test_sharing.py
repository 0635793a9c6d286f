"""Concurrent callers: tokens, limits, steps that block or raise, disconnects, idle sessions."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.serve.lab import END, LONG_SLEEP, LONG_SLEEPING, RAISE, SECRET, SLEEP, SLEEPING, STAY, Liar
from tests.serve.replies import assert_error, assert_refused
from tests.serve.requests import TOKENS, act, bearer
from tests.serve.running import Running, labs, running, talk, until
from websockets.exceptions import InvalidStatus

from tropism.core.adapters.class_based import adapt
from tropism.serve.server import JsonFormatter
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.protocol import session_key


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(own=labs()) as started:
        yield started


def test_requests_without_the_token_are_rejected():
    with running(own=labs(), tokens=TOKENS) as server, server.http() as caller:
        for headers in ({}, bearer("wrong"), {"Authorization": "Basic first-token"}, {"Authorization": "first-token"}):
            refused = caller.post("/reset", json={}, headers=headers)
            assert_refused(refused, "UNAUTHORIZED")
            assert refused.headers["www-authenticate"] == "Bearer"
            assert_refused(caller.get("/metrics", headers=headers), "UNAUTHORIZED")
            with pytest.raises(InvalidStatus) as closed:
                server.ws(additional_headers=headers)
            assert closed.value.response.status_code == 401
        raw = caller.post("/reset", json={}, headers={b"Authorization": "Bearer ü".encode()})
        assert_refused(raw, "UNAUTHORIZED")
        assert caller.get("/health").status_code == 200
        assert caller.post("/reset", json={}, headers=bearer(TOKENS[0])).status_code == 200


def test_a_token_cannot_access_sessions_of_another_token():
    with running(own=labs(), tokens=TOKENS) as server:
        mine, theirs = (server.http(headers=bearer(token)) for token in TOKENS)
        with mine, theirs, server.ws(additional_headers=bearer(TOKENS[1])) as connection:
            id = mine.post("/reset", json={"seed": 1}).headers["x-session-id"]
            named = {"X-Session-Id": id}
            for path in ("/reset", "/step", "/snapshot", "/fork", "/restore", "/close"):
                assert_refused(theirs.post(path, json={}, headers=named), "SESSION_ERROR")
            for path in ("/state", "/history"):
                assert_refused(theirs.get(path, headers=named), "SESSION_ERROR")
            with server.ws(query=f"?session_id={id}", additional_headers=bearer(TOKENS[1])) as resumed:
                assert "SESSION_ERROR" in str(resumed.recv(10))
            assert len(mine.get("/sessions").json()["sessions"]) == 1
            assert theirs.get("/sessions").json()["sessions"] == []
            assert talk(connection, "reset", {"seed": 2})["type"] == "observation"
            assert mine.post("/step", json=act(STAY)).json()["observation"]["value"] == [1.0, 1.0]


def test_the_session_limit_holds_and_close_frees_a_slot():
    """Sessions that cannot be resumed are not evicted to make room."""
    with running(own=labs(), max_sessions=2) as server:
        first, second, third = (server.http("Unwritable-v0") for _ in range(3))
        with first, second, third, server.ws("Unwritable-v0") as connection:
            assert first.post("/reset", json={}).status_code == 200
            assert second.post("/reset", json={}).status_code == 200
            assert_refused(third.post("/reset", json={}), "CAPACITY_REACHED")
            assert_error(talk(connection, "reset"), "CAPACITY_REACHED")
            assert_refused(first.post("/fork", json={}), "CAPACITY_REACHED")
            assert first.post("/step", json=act(STAY)).status_code == 200
            assert second.post("/close").json() == {"closed": True, "step_count": 0}
            assert talk(connection, "reset")["type"] == "observation"
            assert_refused(third.post("/reset", json={}), "CAPACITY_REACHED")


def test_the_socket_limit_holds_and_disconnecting_frees_a_slot():
    with running(own=labs(), max_sockets=2) as server, server.ws() as first:
        with server.ws():
            with pytest.raises(InvalidStatus) as refused, server.ws():
                raise AssertionError("one too many")
            received = json.loads(refused.value.response.body)
            assert (refused.value.response.status_code, received["code"]) == (503, "CAPACITY_REACHED")
            assert "all 2 sockets" in received["message"]
            assert talk(first, "reset")["type"] == "observation"
        until(lambda: socket_available(server))


def socket_available(server: Running) -> bool:
    """Whether another socket can be opened."""
    try:
        with server.ws():
            return True
    except InvalidStatus:
        return False


def test_a_batch_counts_as_one_session_while_its_socket_is_open():
    with running("GridWorld-v0", max_sessions=1) as server, server.ws() as connection:
        with server.ws() as batch:
            assert_error(talk(batch, "open", {"count": 0}), "VALIDATION_ERROR")
            for _ in range(2):
                assert talk(batch, "open", {"count": 2})["type"] == "batch"
            assert_error(talk(connection, "reset"), "CAPACITY_REACHED")
            assert_error(talk(connection, "open", {"count": 2}), "CAPACITY_REACHED")
        until(lambda: len(server.app.sessions) == 0)
        assert talk(connection, "reset")["type"] == "observation"


def test_the_quota_applies_to_each_token_separately():
    with running(own=labs(), tokens=TOKENS, max_sessions_per_token=1) as server:
        caller, other = (server.http("Unwritable-v0", headers=bearer(token)) for token in TOKENS)
        with caller, other:
            assert caller.post("/reset", json={}).status_code == 200
            with server.ws(additional_headers=bearer(TOKENS[0])) as connection:
                assert_error(talk(connection, "reset"), "QUOTA_REACHED")
            assert other.post("/reset", json={}).status_code == 200
            assert caller.post("/step", json=act(STAY)).status_code == 200


def test_the_quota_holds_for_concurrent_callers():
    with running(own=labs(), max_sessions_per_token=3) as server, ThreadPoolExecutor(12) as threads:
        url = f"{server.url}/envs/Unwritable-v0/reset"
        came = list(threads.map(lambda _: httpx.post(url, trust_env=False).status_code, range(12)))
    assert sorted(came) == [200] * 3 + [429] * 9


def test_an_environment_error_has_the_id_of_its_log_line(server: Running, caplog: Any):
    with server.http() as caller, server.ws() as connection, caplog.at_level(logging.ERROR, "tropism.serve"):
        caller.post("/reset", json={"seed": 1})
        talk(connection, "reset", {"seed": 1})
        received = [assert_refused(caller.post("/step", json=act(RAISE)), "EXECUTION_ERROR")]
        received += [assert_error(talk(connection, "step", {"value": RAISE}), "EXECUTION_ERROR")]
        logged = {record.error_id: record for record in caplog.records}
        for error in received:
            assert SECRET not in error["message"]
            assert error["id"] in error["message"]
            assert SECRET in str(logged[error["id"]].exc_info[1])
        assert caller.post("/step", json=act(STAY)).json()["observation"]["value"] == [1.0, 1.0]
        assert talk(connection, "step", {"value": STAY})["data"]["observation"]["value"] == [1.0, 1.0]


def test_the_log_line_of_an_error_names_session_and_episode(server: Running, caplog: Any):
    def rpc(tool: str, session_id: str, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments, "session_id": session_id}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return httpx.post(f"{server.url}/mcp", json=request, trust_env=False).json()

    with server.http() as caller, server.ws() as connection, server.http() as agent:
        ids = [
            caller.post("/reset", json={"episode_id": "one"}).json()["session_id"],
            talk(connection, "reset", {"episode_id": "two"})["data"]["session_id"],
            agent.post("/reset", json={"episode_id": "three"}).json()["session_id"],
        ]
        received = [caller.post("/step", json=act(RAISE)).json()["id"]]
        received += [talk(connection, "step", {"value": RAISE})["data"]["id"]]
        received += [rpc("act", ids[2], action={"value": RAISE})["error"]["data"]["id"]]
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if hasattr(record, "error_id")]
    assert [line["error_id"] for line in lines] == received
    assert [line["session"] for line in lines] == [session_key(id).hex() for id in ids]
    assert [line["episode_id"] for line in lines] == ["one", "two", "three"]
    assert {line["environment"] for line in lines} == {"Lab-v0"}
    assert (lines[0]["path"], lines[2]["tool"]) == ("/step", "act")


def test_an_undeclared_observation_is_an_environment_error(caplog: Any):
    env = adapt(Liar)
    own = {"Liar-v0": ServedEnvironment("Liar-v0", env, env.default_params(), "A test's own.")}
    with running(own=own) as server, server.http() as caller, server.ws() as connection:
        caller.post("/reset", json={}).raise_for_status()
        talk(connection, "reset", {})
        received = [assert_refused(caller.post("/step", json={"action": {}}), "EXECUTION_ERROR")]
        received += [assert_error(talk(connection, "step", {}), "EXECUTION_ERROR")]
        logged = {record.error_id: record for record in caplog.records}
        for error in received:
            assert SECRET not in error["message"]
            assert "as Liar declares" in str(logged[error["id"]].exc_info[1])


def test_a_step_that_times_out_is_not_applied(server: Running):
    with server.http() as caller:
        caller.post("/reset", json={"seed": 5})
        caller.post("/step", json=act(STAY))
        caller.post("/snapshot", json={})  # the first one imports what it needs
        start = time.monotonic()
        assert_refused(caller.post("/step", json=act(SLEEP, timeout_s=0.05, request_id="a")), "TIMEOUT")
        assert time.monotonic() - start < SLEEPING
        assert caller.get("/state").json()["step_count"] == 1
        assert caller.post("/step", json=act(STAY)).json()["observation"]["value"] == [5.0, 2.0]
        time.sleep(SLEEPING)
        assert caller.get("/state").json()["step_count"] == 2
        assert [row["action"]["value"] for row in caller.get("/history").json()["steps"]] == [STAY, STAY]
        retried = caller.post("/step", json=act(SLEEP, timeout_s=1e308, request_id="a"))
        assert retried.json()["observation"]["value"] == [5.0, 3.0]


def test_a_step_within_its_timeout_is_applied_once(server: Running):
    with server.http() as caller:
        caller.post("/reset", json={"seed": 5})
        replies = [caller.post("/step", json=act(SLEEP, timeout_s=20, request_id="a")).json() for _ in range(2)]
        assert replies[0] == replies[1]
        assert caller.get("/state").json()["step_count"] == 1


def test_a_sleeping_step_does_not_block_other_sessions(server: Running):
    with server.http() as sleeper, server.http() as caller, server.ws() as connection:
        for each in (sleeper, caller):
            each.post("/reset", json={})
        talk(connection, "reset")
        thread = threading.Thread(target=lambda: sleeper.post("/step", json=act(LONG_SLEEP)))
        thread.start()
        start = time.monotonic()
        for _ in range(20):
            assert caller.post("/step", json=act(STAY)).status_code == 200
            assert talk(connection, "step", {"value": STAY})["type"] == "observation"
        assert time.monotonic() - start < LONG_SLEEPING / 2
        assert thread.is_alive()
        thread.join()


def test_requests_to_one_session_are_serialised(server: Running):
    with server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["x-session-id"]
        with ThreadPoolExecutor(8) as threads:

            def step(_: int) -> Any:
                reply = httpx.post(f"{server.url}/step", json=act(STAY), headers={"X-Session-Id": id}, trust_env=False)
                return reply.json()["observation"]["value"][1]

            assert sorted(threads.map(step, range(24))) == [float(number) for number in range(1, 25)]


def test_a_step_is_applied_although_its_caller_disconnects(server: Running):
    with server.http() as caller:
        id = caller.post("/reset", json={"seed": 1}).headers["x-session-id"]
        with pytest.raises(httpx.ReadTimeout):
            caller.post("/step", json=act(SLEEP, request_id="r"), timeout=0.05)
        with server.http(headers={"X-Session-Id": id}) as again:
            reply = again.post("/step", json=act(SLEEP, request_id="r")).json()
            assert reply["observation"]["value"] == [1.0, 1.0]
            assert again.get("/state").json()["step_count"] == 1


def test_a_session_can_be_resumed_after_its_socket_breaks_during_a_step(server: Running):
    with server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        connection.send(f'{{"type": "step", "data": {{"value": {SLEEP}}}, "request_id": "r"}}')
        connection.socket.close()
    with server.ws(query=f"?session_id={id}") as connection:
        reply = talk(connection, "step", {"value": SLEEP}, request_id="r")
        assert reply["data"]["observation"]["value"] == [1.0, 1.0]
        assert talk(connection, "state")["data"]["step_count"] == 1


def test_an_idle_session_is_evicted_and_resumed_on_the_next_request():
    with running("CartPole-v1", own=labs(), idle_timeout=0.2) as server:
        for id, action in (("CartPole-v1", 1), ("Lab-v0", STAY)):
            with server.http(id) as caller, server.http(id) as twin:
                for each in (caller, twin):
                    each.post("/reset", json={"seed": 3, "episode_id": "mine"})
                    each.post("/step", json=act(action, request_id="one"))
                until(lambda: len(server.app.sessions) == 0)
                session = caller.cookies.jar.__iter__().__next__().value
                with server.ws(id, query=f"?session_id={session}") as connection:
                    assert talk(connection, "state")["data"] == {"episode_id": "mine", "step_count": 1}
                    time.sleep(0.6)
                    assert len(server.app.sessions) == 1, "a session with an open socket is not idle"
                    resumed = talk(connection, "step", {"value": action})["data"]
                assert twin.post("/step", json=act(action)).json() == {"metadata": None} | resumed
                assert len(caller.get("/history").json()["steps"]) == 2
                caller.post("/close")
                twin.post("/close")


def test_concurrent_callers_all_find_an_evicted_session():
    with running(own=labs(), idle_timeout=0.1) as server, server.http() as opener, ThreadPoolExecutor(8) as threads:
        named = {"X-Session-Id": opener.post("/reset", json={"seed": 1}).headers["x-session-id"]}
        for _ in range(5):
            until(lambda: len(server.app.sessions) == 0)
            came = threads.map(
                lambda _: httpx.get(f"{server.url}/state", headers=named, trust_env=False).status_code, range(8)
            )
            assert set(came) == {200}


def test_a_session_that_cannot_be_replayed_is_not_resumed():
    with running(own=labs(), idle_timeout=0.2) as server, server.http("Unwritable-v0") as caller:
        id = caller.post("/reset", json={}).headers["x-session-id"]
        assert_refused(caller.post("/snapshot", json={}), "STATE_ERROR")
        until(lambda: len(server.app.sessions) == 0)
        assert_refused(caller.get("/state", headers={"X-Session-Id": id}), "SESSION_ERROR")
        assert_refused(caller.post("/step", json=act(END)), "STATE_ERROR")


def test_a_long_step_is_not_idle():
    with running(own=labs(), idle_timeout=0.1) as server, server.http("Unwritable-v0") as caller:
        caller.post("/reset", json={})
        assert caller.post("/step", json=act(SLEEP)).status_code == 200
        assert caller.get("/state").json()["step_count"] == 1
