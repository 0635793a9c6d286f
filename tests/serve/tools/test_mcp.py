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
from tests.serve.running import Running, labs, running

TOKENS = ("first-token", "second-token")
TOOLS = {"list_environments", "reset", "step", "state", "fork"}


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


async def play(opening: AbstractAsyncContextManager[ClientSession]) -> None:
    """Play a game of Connect Four, as a model would."""
    async with opening as session:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
        listed = await call(session, "list_environments")
        assert listed["environments"][0]["environment"] == "ConnectFour-v0"
        turn = await call(session, "reset", environment="ConnectFour-v0", seed=3)
        id, moves = turn["session_id"], 0
        while not turn["done"]:
            legal = turn["observation"]["legal_actions"]
            turn = await call(session, "step", session_id=id, action={"column": legal[moves % len(legal)]})
            moves += 1
        assert moves >= 4
        assert turn["observation"]["winner"] in (-1, 0, 1)
        assert (await call(session, "state", session_id=id))["step_count"] == moves
        assert (await refused(session, "step", session_id=id, action={"column": 0}))["code"] == "STATE_ERROR"


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
            id = (await call(session, "reset", seed=1))["session_id"]
            said = await refused(session, "step", session_id=id, action={"value": SEGFAULT})
            assert "SIGSEGV" in said["message"]
            turn = await call(session, "step", session_id=id, action={"value": STAY_ALIVE})
            assert turn["observation"]["value"] == [1, 1, 0]

    asyncio.run(scene())


def test_forks_and_errors(server: Running):
    async def scene() -> None:
        async with over_http(server.url) as session:
            begun = await call(session, "reset", environment="Lab-v0", seed=1)
            id = begun["session_id"]
            assert "value" in begun["action_schema"]["properties"]
            twin = (await call(session, "fork", session_id=id))["session_id"]
            await call(session, "step", session_id=id, action={"value": STAY})
            assert (await call(session, "state", session_id=twin))["step_count"] == 0
            assert (await call(session, "fork", session_id=id, step=0))["step_count"] == 0
            again = await call(session, "reset", session_id=id, seed=9)
            assert again["observation"]["value"] == [9.0, 0.0]
            raised = await refused(session, "step", session_id=id, action={"value": RAISE})
            assert raised["code"] == "EXECUTION_ERROR"
            assert SECRET not in str(raised)
            for name, arguments in {
                "step": {"session_id": id},
                "state": {"session_id": "nobody"},
                "reset": {"environment": "Nothing-v0"},
                "fork": {"session_id": id, "colour": 1},
                "explode": {},
            }.items():
                assert (await refused(session, name, **arguments))["code"] in ("VALIDATION_ERROR", "SESSION_ERROR")
            assert (await call(session, "step", session_id=id, action={"value": STAY}))["reward"] == 1.0

    asyncio.run(scene())


def test_tokens_cannot_access_each_others_sessions(guarded: Running):
    async def scene() -> None:
        async with over_http(guarded.url, TOKENS[0]) as mine, over_http(guarded.url, TOKENS[1]) as theirs:
            id = (await call(mine, "reset", environment="Lab-v0", seed=1))["session_id"]
            for name in ("state", "fork", "reset"):
                assert (await refused(theirs, name, session_id=id))["code"] == "SESSION_ERROR"
            received = await refused(theirs, "step", session_id=id, action={"value": STAY})
            assert received["code"] == "SESSION_ERROR"
            assert (await call(mine, "state", session_id=id))["step_count"] == 0

    asyncio.run(scene())


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def test_a_token_cannot_use_the_mcp_session_of_another(guarded: Running):
    who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    begin = rpc("initialize", who)
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKENS[0]}"}
    with guarded.http() as caller:
        opened = caller.post("/mcp", json=begin, headers=headers)
        assert opened.status_code == 200, opened.text
        named = headers | {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        reset = rpc("tools/call", {"name": "reset", "arguments": {"environment": "Lab-v0"}})
        id = caller.post("/mcp", json=reset, headers=named).json()["result"]["structuredContent"]["session_id"]
        state = rpc("tools/call", {"name": "state", "arguments": {"session_id": id}})
        stolen = named | {"Authorization": f"Bearer {TOKENS[1]}"}
        assert id not in caller.get("/sessions", headers=stolen).text
        assert "step_count" not in caller.post("/mcp", json=state, headers=stolen).text
        assert "step_count" in caller.post("/mcp", json=state, headers=named).text
        assert caller.post("/mcp", json=state).status_code == 401


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
        names = {tool["name"] for tool in ask("tools/list", session_id=id)["result"]["tools"]}
        assert names == TOOLS - {"list_environments"}

        def tool(name: str, **arguments: Any) -> Any:
            return ask("tools/call", session_id=id, name=name, arguments=arguments)

        assert tool("step", action={"value": STAY})["error"]["data"]["code"] == "STATE_ERROR"
        assert tool("reset", seed=2)["result"]["data"]["observation"]["value"] == [2.0, 0.0]
        assert tool("step", action={"value": STAY})["result"]["data"]["reward"] == 1.0
        assert caller.get("/state", headers={"X-Session-Id": id}).json()["step_count"] == 1
        assert tool("step", action={"value": RAISE})["error"]["data"]["code"] == "EXECUTION_ERROR"
        assert ask("openenv/session/close", session_id=id)["result"]["closed"]
        assert "error" in tool("state")


def test_a_large_mcp_request_is_rejected(server: Running):
    reply = httpx.post(f"{server.url}/mcp", content=b" " * 2**21, trust_env=False)
    assert (reply.status_code, reply.json()["code"]) == (413, "TOO_LARGE")
