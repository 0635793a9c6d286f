"""MCP over HTTP and stdio with the official SDK's client, and the JSON-RPC of OpenEnv's clients."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from tests.isolation.fragile import SEGFAULT
from tests.isolation.fragile import STAY as STAY_ALIVE
from tests.serve.lab import RAISE, SECRET, STAY
from tests.serve.running import Running, labs, running, talk, until
from websockets.sync.client import connect

TOKENS = ("first-token", "second-token")
TOOLS = {
    "list_environments",
    "open_session",
    "begin_episode",
    "take_action",
    "get_state",
    "fork_session",
    "close_session",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("ConnectFour-v0", own=labs()) as started:
        yield started


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(own=labs(), tokens=TOKENS) as started:
        yield started


@asynccontextmanager
async def over_http(url: str, token: str | None = None) -> AsyncGenerator[ClientSession]:
    headers = None if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        streamable_http_client(f"{url}/mcp", http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def over_stdio(*arguments: str) -> AsyncGenerator[ClientSession]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = StdioServerParameters(command=sys.executable, args=["-m", "tropism", "mcp", *arguments], env=environ)
    async with stdio_client(command) as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield session


async def call(session: ClientSession, name: str, **arguments: Any) -> Any:
    result: Any = await session.call_tool(name, arguments)
    assert not result.is_error, result
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(session: ClientSession, name: str, **arguments: Any) -> Any:
    result: Any = await session.call_tool(name, arguments)
    assert result.is_error, result
    assert "Traceback" not in result.content[0].text
    return json.loads(result.content[0].text)


async def begin(session: ClientSession, environment: str | None = None, **arguments: Any) -> Any:
    """Open a session and begin an episode in it."""
    opened = await call(session, "open_session", **({} if environment is None else {"environment": environment}))
    begun = await call(session, "begin_episode", session_id=opened["session_id"], **arguments)
    return opened | begun


async def play(opening: AbstractAsyncContextManager[ClientSession]) -> None:
    """Play a game of Connect Four, as a model would."""
    async with opening as session:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
        listed = await call(session, "list_environments")
        assert listed["environments"][0]["environment"] == "ConnectFour-v0"
        turn = await begin(session, "ConnectFour-v0", seed=3)
        id, moves = turn["session_id"], 0
        while not turn["done"]:
            legal = turn["observation"]["legal_actions"]
            turn = await call(session, "take_action", session_id=id, action={"column": legal[moves % len(legal)]})
            moves += 1
        assert moves >= 4
        assert turn["observation"]["winner"] in (-1, 0, 1)
        assert (await call(session, "get_state", session_id=id))["step_count"] == moves
        assert (await refused(session, "take_action", session_id=id, action={"column": 0}))["code"] == "STATE_ERROR"


def test_a_whole_game_over_http(server: Running):
    asyncio.run(play(over_http(server.url)))


def test_a_whole_game_over_http_of_one_environment(server: Running):
    asyncio.run(play(over_http(f"{server.url}/envs/ConnectFour-v0")))


def test_a_whole_game_over_stdio():
    asyncio.run(play(over_stdio("ConnectFour-v0")))


@pytest.mark.slow
def test_a_crash_over_stdio_ends_only_its_episode():
    async def scene() -> None:
        arguments = ("tests.isolation.fragile:Fragile", "--processes", "--param", "gain=0")
        async with over_stdio(*arguments) as session:
            id = (await begin(session, seed=1))["session_id"]
            said = await refused(session, "take_action", session_id=id, action={"value": SEGFAULT})
            assert "SIGSEGV" in said["message"]
            turn = await call(session, "take_action", session_id=id, action={"value": STAY_ALIVE})
            assert turn["observation"]["value"] == [1, 1, 0]

    asyncio.run(scene())


def test_forks_and_errors(server: Running):
    async def scene() -> None:
        async with over_http(server.url) as session:
            begun = await begin(session, "Lab-v0", seed=1)
            id = begun["session_id"]
            assert "value" in begun["action_schema"]["properties"]
            twin = (await call(session, "fork_session", session_id=id))["session_id"]
            await call(session, "take_action", session_id=id, action={"value": STAY})
            assert (await call(session, "get_state", session_id=twin))["step_count"] == 0
            assert (await call(session, "fork_session", session_id=id, step=0))["step_count"] == 0
            again = await call(session, "begin_episode", session_id=id, seed=9)
            assert again["observation"]["value"] == [9.0, 0.0]
            raised = await refused(session, "take_action", session_id=id, action={"value": RAISE})
            assert raised["code"] == "EXECUTION_ERROR"
            assert SECRET not in str(raised)
            for name, arguments in {
                "take_action": {"session_id": id},
                "get_state": {"session_id": "nobody"},
                "open_session": {"environment": "Nothing-v0"},
                "begin_episode": {"session_id": id, "seed": -1},
                "fork_session": {"session_id": id, "colour": 1},
                "explode": {},
            }.items():
                assert (await refused(session, name, **arguments))["code"] in ("VALIDATION_ERROR", "SESSION_ERROR")
            assert (await call(session, "take_action", session_id=id, action={"value": STAY}))["reward"] == 1.0

    asyncio.run(scene())


def test_tokens_cannot_access_each_others_sessions(guarded: Running):
    async def scene() -> None:
        async with over_http(guarded.url, TOKENS[0]) as mine, over_http(guarded.url, TOKENS[1]) as theirs:
            id = (await begin(mine, "Lab-v0", seed=1))["session_id"]
            for name in ("get_state", "fork_session", "begin_episode", "close_session"):
                assert (await refused(theirs, name, session_id=id))["code"] == "SESSION_ERROR"
            received = await refused(theirs, "take_action", session_id=id, action={"value": STAY})
            assert received["code"] == "SESSION_ERROR"
            assert (await call(mine, "get_state", session_id=id))["step_count"] == 0

    asyncio.run(scene())


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def test_take_action_takes_words_and_a_request_id(server: Running):
    async def scene() -> None:
        async with over_http(server.url) as session:
            id = (await begin(session, "ConnectFour-v0", seed=1))["session_id"]
            once = await call(session, "take_action", session_id=id, action="column 3", request_id="r1")
            assert "error" not in once["observation"]
            assert await call(session, "take_action", session_id=id, action="column 3", request_id="r1") == once
            assert (await call(session, "get_state", session_id=id))["step_count"] == 1
            assert await call(session, "close_session", session_id=id) == {"closed": True, "step_count": 1}
            assert (await refused(session, "get_state", session_id=id))["code"] == "SESSION_ERROR"

    asyncio.run(scene())


def test_tool_schemas_are_those_of_the_requests(server: Running):
    """Each tool rejects what its schema rejects: an unknown argument, and a missing required one."""

    async def scene() -> None:
        async with over_http(server.url) as session:
            for tool in (await session.list_tools()).tools:
                assert tool.input_schema["additionalProperties"] is False
                assert (await refused(session, tool.name, colour=1))["code"] == "VALIDATION_ERROR"
                if tool.input_schema["required"]:
                    assert (await refused(session, tool.name))["code"] == "VALIDATION_ERROR"

    asyncio.run(scene())


def test_mcp_over_http_has_no_stream_and_answers_notifications_with_202(server: Running):
    with server.http() as caller:
        assert caller.get("/mcp", headers={"Accept": "text/event-stream"}).status_code == 405
        assert caller.delete("/mcp").status_code == 405
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert caller.post("/mcp", json=note).status_code == 202
        asked = caller.post("/mcp", json=rpc("initialize", {"protocolVersion": "2025-03-26"})).json()["result"]
        assert asked["protocolVersion"] == "2025-03-26"
        assert caller.post("/mcp", json=rpc("ping", {})).json()["result"] == {}
        assert caller.post("/mcp", json=rpc("prompts/list", {})).json()["error"]["code"] == -32601


RPC: dict[str, tuple[Any, int]] = {
    "nothing": (b"", -32700),
    "no JSON": (b"{", -32700),
    "array": (b"[]", -32600),
    "no version": (b'{"method": "tools/list", "id": 1}', -32600),
    "no method": (b'{"jsonrpc": "2.0", "id": 1}', -32600),
    "unknown method": (b'{"jsonrpc": "2.0", "id": 1, "method": "openenv/explode"}', -32601),
    "unknown session": (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"session_id": "x"}}', -32602),
    "params of a list": (b'{"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": [1]}', -32602),
}


@pytest.mark.parametrize("name", RPC)
def test_bad_json_rpc_is_answered_with_a_json_rpc_error(server: Running, name: str):
    body, code = RPC[name]
    reply = httpx.post(f"{server.url}/mcp", content=body, trust_env=False)
    assert (reply.status_code, reply.json()["jsonrpc"], reply.json()["error"]["code"]) == (200, "2.0", code)
    assert "Traceback" not in reply.text


def test_openenv_sessions_over_json_rpc(server: Running):
    with server.http("Lab-v0") as caller:

        def ask(method: str, **params: Any) -> Any:
            reply = caller.post("/mcp", json=rpc(method, params)).json()
            assert reply["id"] == 7
            return reply

        id = ask("openenv/session/create")["result"]["session_id"]
        assert [tool["name"] for tool in ask("tools/list", session_id=id)["result"]["tools"]] == ["act"]

        def act(action: Any) -> Any:
            return ask("tools/call", session_id=id, name="act", arguments={"action": action})

        assert act({"value": STAY})["result"]["data"]["reward"] == 1.0  # the first call begins the episode
        assert caller.get("/state", headers={"X-Session-Id": id}).json()["step_count"] == 1
        assert act({"value": RAISE})["error"]["data"]["code"] == "EXECUTION_ERROR"
        assert ask("openenv/session/close", session_id=id)["result"]["closed"]
        assert "error" in act({"value": STAY})


def test_openenv_rpc_on_sockets(server: Running):
    with server.ws("ConnectFour-v0") as socket:
        listed = talk(socket, "mcp", rpc("tools/list", {}))
        assert (listed["type"], listed["data"]["id"]) == ("mcp", 7)
        assert [tool["name"] for tool in listed["data"]["result"]["tools"]] == ["drop_disc"]
        called = talk(socket, "mcp", rpc("tools/call", {"name": "drop_disc", "arguments": {"column": 3}}))
        assert called["data"]["result"]["data"]["done"] is False
        assert talk(socket, "state")["data"]["step_count"] == 1
        assert talk(socket, "mcp", rpc("explode", {}))["data"]["error"]["code"] == -32601
    address = server.url.replace("http", "ws") + "/envs/ConnectFour-v0/mcp"
    before = len(server.app.sessions)
    with connect(address, proxy=None) as socket:
        socket.send(json.dumps(rpc("tools/call", {"name": "drop_disc", "arguments": {"column": 3}})))
        assert json.loads(socket.recv(30))["result"]["data"]["done"] is False
        socket.send("{")
        assert json.loads(socket.recv(30))["error"]["code"] == -32700
        assert len(server.app.sessions) == before + 1
    until(lambda: len(server.app.sessions) == before)


def test_a_large_mcp_request_is_rejected(server: Running):
    reply = httpx.post(f"{server.url}/mcp", content=b" " * 2**21, trust_env=False)
    assert (reply.status_code, reply.json()["code"]) == (413, "TOO_LARGE")
