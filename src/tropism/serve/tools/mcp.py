"""MCP: initialisation and tools, over HTTP without state, and over stdio."""

import asyncio
import sys
from functools import partial
from typing import Any

from tropism import __version__
from tropism.serve import errors
from tropism.serve.tools import rpc
from tropism.serve.tools.rpc import ToolSet
from tropism.wire.codec import encode

# The revisions of MCP with `initialize`; clients of later ones fall back to it.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


async def respond(message: Any, tools: ToolSet) -> dict[str, Any] | None:
    """The reply to a message; None to a notification or to a reply."""
    if rpc.is_reply(message) or (rpc.is_request(message) and "id" not in message):
        return None
    return await rpc.respond(message, partial(_result, tools))


async def _result(tools: ToolSet, method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "tropism", "version": __version__},
                "instructions": await tools.instructions(),
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": await tools.list()}
        case "tools/call":
            return await _call(tools, *rpc.read_arguments(params))
        case _:
            raise rpc.unknown_method(method)


async def _call(tools: ToolSet, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool; an error is a result too, so that the agent reads it."""
    try:
        value = await tools.call(name, arguments)
    except Exception as error:  # the outermost level: every error gets a reply
        return rpc.text_content(errors.error_json(errors.to_server_error(error, tool=name))) | {"isError": True}
    return rpc.text_content(value) | {"structuredContent": value, "isError": False}


async def serve_stdio(tools: ToolSet) -> None:
    """Serve MCP on standard input and output, one JSON message per line, until the input closes."""
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        reply = await rpc.respond_to_text(line, partial(respond, tools=tools))
        if reply is not None:
            sys.stdout.buffer.write(encode(reply) + b"\n")
            sys.stdout.buffer.flush()
