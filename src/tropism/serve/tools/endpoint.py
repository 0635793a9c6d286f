"""The path /mcp: OpenEnv's JSON-RPC and, if the extra `mcp` is installed, MCP."""

from contextlib import AbstractAsyncContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tropism.errors import ServerError
from tropism.serve.http.messages import (
    NO_FRAMES,
    SAFE_HEADERS,
    add_headers,
    error_response,
    json_response,
    read_body,
    send_response,
)
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.settings import Settings
from tropism.serve.tools import openenv
from tropism.serve.tools.tools import Tools
from tropism.wire.codec import decode

NO_MCP = "MCP needs an optional dependency on the server: pip install 'tropism[mcp]'"


class McpPath:
    """Replies to OpenEnv's JSON-RPC, and passes all other requests to the MCP SDK."""

    def __init__(self, tools: Tools, sessions: SessionRegistry, settings: Settings):
        self._tools = tools
        self._sessions = sessions
        self._settings = settings
        installed = find_spec("mcp") is not None
        self._sdk = import_module("tropism.serve.tools.mcp").session_manager(tools) if installed else None

    def run(self) -> AbstractAsyncContextManager[None]:
        """Enter this once, before the first request."""
        return nullcontext() if self._sdk is None else self._sdk.run()

    async def serve(self, scope: Any, receive: Any, send: Any, environment: ServedEnvironment) -> None:
        if scope["method"] != "POST":
            await self._serve_sdk(scope, receive, send)
            return
        try:
            body = await read_body(scope, receive, self._settings)
            request = decode(body)
        except ServerError as reason:
            too_much = reason.code in ("TOO_LARGE", "TOO_SLOW")
            reply = openenv.error(None, openenv.PARSE_ERROR, reason.message)
            await send_response(scope, send, error_response(reason) if too_much else json_response(reply))
            return
        if openenv.is_openenv_request(request):
            reply = await openenv.respond(request, environment, scope["owner"], self._sessions, self._tools)
            await send_response(scope, send, json_response(reply))
        else:
            await self._serve_sdk(scope, _replay_body(body, receive), send)

    async def _serve_sdk(self, scope: Any, receive: Any, send: Any) -> None:
        if self._sdk is None:
            reply = openenv.error(None, openenv.NO_METHOD, NO_MCP)
            await send_response(scope, send, json_response(reply))
        else:
            await self._sdk.handle_request(scope, receive, add_headers(send, [*SAFE_HEADERS, NO_FRAMES]))


def _replay_body(body: bytes, receive: Any) -> Any:
    """A `receive` that first returns a body that has already been read."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Any:
        return next(messages, None) or await receive()

    return replay
