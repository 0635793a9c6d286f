"""Plays over MCP with the official SDK, version 1 or 2; runs in the virtual environment of that version."""

import asyncio
import json
import sys
from importlib.metadata import version

from mcp import ClientSession

try:
    from mcp.client.streamable_http import streamable_http_client
except ImportError:
    from mcp.client.streamable_http import streamablehttp_client as streamable_http_client


async def play(url):
    """Open a session, act in it, and act as its agent."""
    async with streamable_http_client(f"{url}/mcp") as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        assert "take_action" in names, names
        opened = await call(session, "open_session", environment="Echo-v0")
        await call(session, "begin_episode", session_id=opened["session_id"], seed=1)
        agent = f"{url}/agent/{opened['agent_id']}/mcp"
        async with streamable_http_client(agent) as inner, ClientSession(*inner[:2]) as own:
            await own.initialize()
            assert [tool.name for tool in (await own.list_tools()).tools] == ["echo_message"]
            assert (await call(own, "echo_message", message="hello"))["reward"] == 0.5
        acted = await call(session, "take_action", session_id=opened["session_id"], action="hello")
        assert acted["reward"] == 0.5, acted
        assert (await call(session, "get_state", session_id=opened["session_id"]))["step_count"] == 2


async def call(session, name, **arguments):
    result = await session.call_tool(name, arguments)
    return json.loads(result.content[0].text)


def verdict(url):
    try:
        asyncio.run(play(url))
    except Exception as error:  # noqa: BLE001 - any error is the result
        return f"{type(error).__name__}: {error}"
    return "ok"


if __name__ == "__main__":
    print(json.dumps({f"mcp {version('mcp')}": verdict(sys.argv[1])}))
