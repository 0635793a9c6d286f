"""Private info, the admin token, and the agent endpoint: what an agent may know and do."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from tests.serve.lab import RAISE
from tests.serve.replies import assert_error, assert_refused
from tests.serve.requests import call_tool
from tests.serve.running import Running, labs, running, talk

from tropism import auto_reset, make
from tropism.client import VectorClient
from tropism.serve.server import JsonFormatter
from tropism.serve.session.environment import ServedEnvironment

PRIVATE = {"source_location", "goal_location", "distance_to_goal", "concentration_at_agent"}
PLUME = "PlumeNav-v0"
TOKEN, ADMIN = "a-token", "an-admin-token"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(PLUME, "Echo-v0", "ConnectFour-v0", own=labs()) as started:
        yield started


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    """A server on which private info is served, but only with the admin token."""
    with running(PLUME, own=labs(), tokens=(TOKEN,), admin_token=ADMIN, info="all") as started:
        yield started


def evict(server: Running, session_id: str) -> None:
    async def find_and_evict() -> None:
        await server.app.sessions.evict(await server.app.sessions.find(session_id, None, None))

    asyncio.run_coroutine_threadsafe(find_and_evict(), server.loop).result(30)


def assert_public(reply: Any) -> None:
    text = json.dumps(reply)
    assert "goal_reached" in text
    assert not [name for name in PRIVATE if name in text]


def test_plumes_declare_what_gives_the_source_away():
    assert set(make(PLUME)[0].private_info) == PRIVATE
    assert make("CartPole-v1")[0].private_info == ()


def test_private_info_is_not_served(server: Running):
    with server.http(PLUME) as caller, server.ws(PLUME) as socket:
        assert_public(caller.post("/reset", json={"seed": 1}).json())
        assert_public(caller.post("/step", json={"action": {"value": 1}}).json())
        assert_public(talk(socket, "reset", {"seed": 1}))
        assert_public(talk(socket, "step", {"value": 1}))
        snapshot = talk(socket, "snapshot")["data"]["snapshot_id"]
        assert_public(talk(socket, "restore", {"from": snapshot}))
    with VectorClient(f"{server.url}/envs/{PLUME}", 2, seed=0, mode="same_step") as batch:
        assert not PRIVATE & set(batch.first["info"])
        result = batch.step([1, 1])
        assert "goal_reached" in result["info"]
        assert not PRIVATE & (set(result["info"]) | set(result["final_info"]))


def test_private_info_of_a_finished_episode_is_not_served():
    env, params = make(PLUME, max_steps=1)
    env = auto_reset(env, mode="same_step")
    with running(own={"Auto-v0": ServedEnvironment("Auto-v0", env, params, "")}) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        reply = caller.post("/step", json={"action": {"value": 1}}).json()
        assert "goal_reached" in reply["metadata"]["final_info"]
        assert_public(reply)


def test_the_operator_can_serve_private_info():
    with running(PLUME, info="all") as server, server.http() as caller:
        assert set(caller.post("/reset", json={"seed": 1}).json()["metadata"]) > PRIVATE


def test_a_resumed_reply_has_no_private_info(server: Running):
    """A replay after an eviction returns the reply that the client got before."""
    with server.http(PLUME) as caller:
        begun = caller.post("/reset", json={"seed": 1}).json()
        step = {"action": {"value": 1}, "request_id": "once"}
        first = caller.post("/step", json=step).json()
        evict(server, begun["session_id"])
        assert caller.post("/step", json=step).json() == first


def test_the_admin_token_alone_forks_snapshots_restores_and_reads_histories(guarded: Running):
    with guarded.http(PLUME, headers=bearer(TOKEN)) as agent, guarded.http(PLUME, headers=bearer(ADMIN)) as admin:
        begun = agent.post("/reset", json={"seed": 1}).json()
        assert_public(begun)
        own = {"X-Session-Id": begun["session_id"]}
        requests: dict[str, Any] = {"/snapshot": {}, "/restore": {"from": "x"}, "/fork": {}}
        for path, body in requests.items():
            assert_refused(agent.post(path, json=body), "FORBIDDEN")
        assert_refused(agent.get("/history"), "FORBIDDEN")
        view = f"/sessions/{begun['view']}"
        for path in (f"{view}/history", f"{view}/picture?step=0"):
            assert_refused(agent.get(path), "FORBIDDEN")
            assert admin.get(path).status_code == 200
        assert_refused(agent.post(f"{view}/fork", json={"step": 0}), "FORBIDDEN")
        assert admin.get("/history", headers=own).json()["seed"] == 1
        snapshot = admin.post("/snapshot", json={}, headers=own).json()["snapshot_id"]
        assert admin.post("/restore", json={"from": snapshot}, headers=own).status_code == 200
        assert admin.post("/fork", json={}, headers=own).status_code == 200
        assert set(admin.post("/reset", json={"seed": 1}).json()["metadata"]) > PRIVATE
        assert agent.post("/step", json={"action": {"value": 1}}).status_code == 200


def test_the_admin_token_on_a_socket(guarded: Running):
    with guarded.ws(PLUME, additional_headers=bearer(TOKEN)) as agent:
        id = talk(agent, "reset", {"seed": 1})["data"]["session_id"]
        for kind, data in {"fork": {}, "snapshot": {}, "restore": {"from": "x"}, "history": {}}.items():
            assert_error(talk(agent, kind, data), "FORBIDDEN")
        assert_public(talk(agent, "step", {"value": 1}))
    with guarded.ws(PLUME, f"?session_id={id}", additional_headers=bearer(ADMIN)) as admin:
        assert talk(admin, "history")["data"]["seed"] == 1


def test_the_admin_token_over_mcp(guarded: Running):
    with guarded.http(headers=bearer(TOKEN)) as agent, guarded.http(headers=bearer(ADMIN)) as admin:
        own = {"session_id": call_tool(agent, "open_session", environment=PLUME)["session_id"]}
        assert_public(call_tool(agent, "begin_episode", seed=1, **own))
        assert_public(call_tool(agent, "take_action", action={"value": 1}, **own))
        assert call_tool(agent, "fork_session", **own)["code"] == "FORBIDDEN"
        fork = call_tool(admin, "fork_session", **own)
        assert fork["step_count"] == 1
        assert call_tool(agent, "get_state", session_id=fork["session_id"])["step_count"] == 1
        theirs = {"session_id": call_tool(admin, "open_session", environment=PLUME)["session_id"]}
        assert set(call_tool(admin, "begin_episode", seed=1, **theirs)["metadata"]) > PRIVATE


def test_on_a_server_without_tokens_callers_are_not_admins():
    with running(own=labs(), admin_token=ADMIN) as server, server.http() as caller:
        caller.post("/reset", json={})
        assert_refused(caller.post("/fork", json={}), "FORBIDDEN")
        assert caller.post("/fork", json={}, headers=bearer(ADMIN)).status_code == 200
        assert_refused(caller.post("/fork", json={}, headers=bearer("guess")), "UNAUTHORIZED")


def test_an_agent_acts_and_observes_without_a_token(guarded: Running):
    """Also in a session of the admin token, which sees private info."""
    with guarded.http(PLUME, headers=bearer(ADMIN)) as admin, guarded.http() as agent:
        begun = admin.post("/reset", json={"seed": 1}).json()
        url = f"/agent/{begun['agent_id']}"
        first = agent.get(f"{url}/observation").json()
        assert first["observation"]["value"] == begun["observation"]["value"]
        reply = agent.post(f"{url}/step", json={"action": {"value": 1}, "request_id": "r"}).json()
        assert agent.post(f"{url}/step", json={"action": {"value": 1}, "request_id": "r"}).json() == reply
        assert agent.get(f"{url}/observation").json()["observation"] == reply["observation"]
        for each in (first, reply):
            assert_public(each)
            assert not {"session_id", "view", "agent_id", "seed"} & set(each)
        assert admin.get("/state").json()["step_count"] == 1
        for path in ("reset", "fork", "restore", "snapshot", "history", "picture", "state", "close"):
            assert_refused(agent.post(f"{url}/{path}", json={}), "NOT_FOUND")
            assert_refused(agent.get(f"{url}/{path}"), "NOT_FOUND")
        assert_refused(agent.post("/agent/guess/step", json={"action": {"value": 1}}), "SESSION_ERROR")
        assert_refused(agent.post(f"/agent/{begun['view']}/step", json={"action": {"value": 1}}), "SESSION_ERROR")


def play_over_mcp(url: str, tool: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    """List the tools of an agent and call one; returns the instructions and the result."""

    async def scene() -> Any:
        async with streamable_http_client(url) as streams, ClientSession(*streams[:2]) as session:
            begun: Any = await session.initialize()
            assert [each.name for each in (await session.list_tools()).tools] == [tool]
            result: Any = await session.call_tool(tool, arguments)
            refused: Any = await session.call_tool("begin_episode", {})
            assert refused.is_error
            return begun.instructions, result.structured_content

    return asyncio.run(scene())


@pytest.mark.parametrize(
    ("id", "tool", "arguments"),
    [
        ("Echo-v0", "echo_message", {"message": "hello"}),
        ("ConnectFour-v0", "drop_disc", {"column": 3}),
        (PLUME, "act", {"action": "right"}),
        (PLUME, "act", {"action": {"value": 1}}),
    ],
)
def test_an_agent_has_one_tool_over_mcp(server: Running, id: str, tool: str, arguments: dict[str, Any]):
    with server.http(id) as caller:
        begun = caller.post("/reset", json={"seed": 1}).json()
        instructions, result = play_over_mcp(f"{server.url}/agent/{begun['agent_id']}/mcp", tool, arguments)
        assert caller.get("/state").json()["step_count"] == 1
        assert json.loads(instructions.partition("Now: ")[2])["observation"] == begun["observation"]
        assert not {"session_id", "view", "agent_id", "seed"} & set(result)
        assert not PRIVATE & set(result.get("metadata", {}))


def test_an_agent_id_stays_valid_after_an_eviction_and_ends_with_the_session(server: Running):
    with server.http("Echo-v0") as caller, server.http() as agent:
        begun = caller.post("/reset", json={"seed": 1}).json()
        url = f"/agent/{begun['agent_id']}/step"
        evict(server, begun["session_id"])
        assert agent.post(url, json={"action": {"message": "hi"}}).json()["reward"] == pytest.approx(0.2)
        caller.post("/close", json={})
        assert_refused(agent.post(url, json={"action": {"message": "hi"}}), "SESSION_ERROR")


def test_an_agent_id_is_not_logged(server: Running, caplog: pytest.LogCaptureFixture):
    with server.http("Lab-v0") as caller, caplog.at_level(logging.DEBUG):
        begun = caller.post("/reset", json={"seed": 1}).json()
        url = f"{server.url}/agent/{begun['agent_id']}"
        assert_refused(caller.post(f"{url}/step", json={"action": {"value": RAISE}}), "EXECUTION_ERROR")
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        caller.post(f"{url}/mcp", json=rpc | {"params": {"name": "act", "arguments": {"action": {"value": RAISE}}}})
        lines = [JsonFormatter().format(record) for record in caplog.records if record.name.startswith("tropism")]
        assert len([line for line in lines if "error_id" in line]) == 2
        assert not [line for line in lines if begun["agent_id"] in line]
