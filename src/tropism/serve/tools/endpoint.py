"""The paths /mcp and /agent/{agent_id}/mcp: MCP, and the JSON-RPC of OpenEnv's clients."""

from collections.abc import Awaitable, Callable
from typing import Any

from tropism.errors import ServerError
from tropism.serve.http.messages import Response, error_response, json_response, read_body, send_response
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.settings import Settings
from tropism.serve.tools import mcp, openenv, rpc
from tropism.serve.tools.actions import ActionTools
from tropism.serve.tools.tools import SessionTools
from tropism.wire.codec import decode, encode

ACCEPTED = 202  # the reply to a notification


class McpPath:
    """Replies to OpenEnv's JSON-RPC and to MCP, which it serves without state: every request stands alone."""

    def __init__(self, sessions: SessionRegistry, settings: Settings):
        self._sessions = sessions
        self._settings = settings

    async def serve(self, scope: Any, receive: Any, send: Any, environment: ServedEnvironment) -> None:
        """Requests about all sessions of the caller."""
        await send_response(scope, send, await self._post(scope, receive, self._responder(environment, scope["owner"])))

    async def serve_agent(self, scope: Any, receive: Any, send: Any, agent_id: str) -> None:
        """Requests of an agent about its one session."""

        async def respond(message: Any) -> dict[str, Any] | None:
            return await mcp.respond(message, ActionTools(await self._sessions.find_agent(agent_id)))

        await send_response(scope, send, await self._post(scope, receive, respond))

    def _responder(
        self, environment: ServedEnvironment, owner: str
    ) -> Callable[[Any], Awaitable[dict[str, Any] | None]]:
        tools = SessionTools(self._sessions, self._sessions.environments, owner)

        async def respond(message: Any) -> dict[str, Any] | None:
            if openenv.is_openenv_request(message):
                return await openenv.respond(message, environment, owner, self._sessions)
            return await mcp.respond(message, tools)

        return respond

    async def _post(
        self, scope: Any, receive: Any, respond: Callable[[Any], Awaitable[dict[str, Any] | None]]
    ) -> Response:
        if scope["method"] != "POST":  # there is no stream of messages from the server, nor a session to delete
            response = error_response(ServerError("METHOD_NOT_ALLOWED", f"{scope['method']} /mcp; expected POST"))
            response.headers = [(b"allow", b"POST")]
            return response
        try:
            message = decode(await read_body(scope, receive, self._settings))
        except ServerError as reason:
            too_much = reason.code in ("TOO_LARGE", "TOO_SLOW")
            reply = rpc.error(None, rpc.PARSE_ERROR, reason.message)
            return error_response(reason) if too_much else json_response(reply)
        try:
            reply = await respond(message)
        except ServerError as reason:
            return error_response(reason)
        return Response(b"", ACCEPTED) if reply is None else json_response(reply)

    async def serve_socket(self, scope: Any, receive: Any, send: Any, environment: ServedEnvironment) -> None:
        """OpenEnv's JSON-RPC on a socket, whose session opens and closes with it."""
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        session = None
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                session = session or await self._sessions.open(environment, scope["owner"])
                try:
                    request = decode(message.get("text") or message.get("bytes") or b"")
                except ServerError as reason:
                    reply = rpc.error(None, rpc.PARSE_ERROR, reason.message)
                else:
                    reply = await openenv.respond_in_session(request, session, self._sessions)
                await send({"type": "websocket.send", "text": encode(reply).decode()})
        except ServerError as reason:
            reply = rpc.error(None, rpc.SERVER_ERROR, reason.message, {"code": reason.code})
            await send({"type": "websocket.send", "text": encode(reply).decode()})
            await send({"type": "websocket.close", "code": 1008, "reason": reason.code})
        finally:
            if session is not None:
                await self._sessions.close(session)
