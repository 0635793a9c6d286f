"""MCP and the JSON-RPC of OpenEnv's clients: POST /mcp and /agent/{agent_id}/mcp, and a socket at /mcp."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tropism.errors import ServerError
from tropism.serve.http.api import HttpApi
from tropism.serve.http.messages import HttpRequest, Response, json_response
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.tools import mcp, openenv, rpc
from tropism.serve.tools.actions import ActionTools
from tropism.serve.tools.tools import SessionTools
from tropism.wire.codec import encode

ACCEPTED = 202  # the reply to a notification


async def caller_rpc(api: HttpApi, request: HttpRequest) -> Response:
    """Requests about all sessions of the caller. MCP is served without state: every request stands alone."""
    sessions, owner = api.sessions, request.owner

    async def respond(message: Any) -> dict[str, Any] | None:
        if openenv.is_openenv_request(message):
            return await openenv.respond(message, request.environment, owner, sessions)
        return await mcp.respond(message, SessionTools(sessions, sessions.environments, owner))

    return await _response(request, respond)


async def agent_rpc(api: HttpApi, request: HttpRequest) -> Response:
    """Requests of an agent about its one session."""

    async def respond(message: Any) -> dict[str, Any] | None:
        return await mcp.respond(message, ActionTools(await api.sessions.find_agent(request.parameters["agent_id"])))

    return await _response(request, respond)


async def _response(request: HttpRequest, respond: Callable[[Any], Awaitable[dict[str, Any] | None]]) -> Response:
    reply = await rpc.respond_to_text(request.data["data"], respond)
    return Response(b"", ACCEPTED) if reply is None else json_response(reply)


async def serve_rpc_socket(
    sessions: SessionRegistry, environment: ServedEnvironment, scope: Any, receive: Any, send: Any
) -> None:
    """OpenEnv's JSON-RPC on a socket, whose session opens and closes with it."""
    await receive()  # websocket.connect
    await send({"type": "websocket.accept"})
    session = None
    try:
        while (message := await receive())["type"] != "websocket.disconnect":
            session = session or await sessions.open(environment, scope["owner"])
            text = message.get("text") or message.get("bytes") or b""
            reply = await rpc.respond_to_text(
                text, partial(openenv.respond_in_session, session=session, sessions=sessions)
            )
            await send({"type": "websocket.send", "text": encode(reply).decode()})
    except ServerError as reason:
        reply = rpc.error(None, rpc.SERVER_ERROR, reason.message, {"code": reason.code})
        await send({"type": "websocket.send", "text": encode(reply).decode()})
        await send({"type": "websocket.close", "code": 1008, "reason": reason.code})
    finally:
        if session is not None:
            await sessions.close(session)
