"""MCP by the official SDK, over HTTP at /mcp and over stdio."""

from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from tropism import __version__
from tropism.serve import errors
from tropism.serve.http.auth import ANONYMOUS
from tropism.serve.tools.tools import Tools
from tropism.wire.codec import encode

INSTRUCTIONS = (
    "Environments to act in. Call list_environments, then reset with the environment's name: it returns a session_id "
    "and the first observation. Then call step with that session_id and an action until done is true."
)


def session_manager(tools: Tools) -> StreamableHTTPSessionManager:
    """Serves MCP over HTTP; each request has the rights of its token.

    Stateless, so that `initialize` keeps nothing: sessions are named by an argument of the tools, and are limited.
    """
    return StreamableHTTPSessionManager(mcp_server(tools), json_response=True, stateless=True)


def mcp_server(tools: Tools) -> Server[Any]:
    """The tools as an MCP server."""

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        await tools.prepare_schemas()
        return ListToolsResult(tools=[Tool.model_validate(tool) for tool in tools.list()])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        request = getattr(context, "request", None)  # there is none over stdio
        owner = ANONYMOUS if request is None else request.scope["owner"]
        try:
            value = await tools.call(params.name, params.arguments or {}, owner)
        except Exception as error:  # the outermost level: the agent gets the error as a result
            data = errors.error_json(errors.to_server_error(error, tool=params.name))
            return CallToolResult(content=[_text(data)], is_error=True)
        return CallToolResult(content=[_text(value)], structured_content=value)

    return Server(
        "tropism",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(tools: Tools) -> None:
    """Serve MCP on standard input and output until they close."""
    server = mcp_server(tools)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _text(value: Any) -> TextContent:
    return TextContent(type="text", text=encode(value).decode())
