"""The JSON-RPC that OpenEnv's clients send to /mcp and in frames of type mcp, besides MCP."""

from functools import partial
from typing import Any

from tropism.core.session.session import EnvironmentState
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import LiveSession
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.tools import rpc
from tropism.serve.tools.actions import ActionTools

SESSION_METHODS = ("tools/list", "tools/call")
METHODS = ("openenv/session/close", *SESSION_METHODS)  # those that need a session


def is_openenv_request(message: Any) -> bool:
    """Whether this is OpenEnv's dialect of JSON-RPC, or no JSON-RPC at all, rather than MCP."""
    if not rpc.is_request(message):
        return not rpc.is_reply(message)  # an MCP client may send a reply
    params = message.get("params")
    has_session_id = isinstance(params, dict) and "session_id" in params
    return message["method"].startswith("openenv/") or (message["method"] in SESSION_METHODS and has_session_id)


async def respond(
    message: Any, environment: ServedEnvironment, owner: str, sessions: SessionRegistry
) -> dict[str, Any]:
    """The reply; every error is a JSON-RPC error, as OpenEnv's clients expect."""

    async def perform(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "openenv/session/create":
            return {"session_id": (await sessions.open(environment, owner)).id, "step_count": 0}
        if method not in METHODS:
            raise rpc.unknown_method(method)
        session = await sessions.find(str(params.get("session_id")), environment, owner)
        return await _perform(session, sessions, method, params)

    return await rpc.respond(message, perform, environment=environment.id)


async def respond_in_session(message: Any, session: LiveSession, sessions: SessionRegistry) -> dict[str, Any]:
    """As `respond`, with the session of the socket."""
    return await rpc.respond(message, partial(_perform, session, sessions), environment=session.environment.id)


async def _perform(
    session: LiveSession, sessions: SessionRegistry, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    tools = ActionTools(session)
    if method == "openenv/session/close":
        return {"session_id": session.id, "closed": True, "step_count": await sessions.close(session)}
    if method == "tools/list":
        return {"tools": await tools.list()}
    if method != "tools/call":
        raise rpc.unknown_method(method)
    if session.session.lifecycle is EnvironmentState.CREATED:  # a tool of OpenEnv needs no reset before it
        await session.perform("reset", {})
    value = await tools.call(*rpc.read_arguments(params))
    return rpc.text_content(value) | {"data": value, "isError": False}
