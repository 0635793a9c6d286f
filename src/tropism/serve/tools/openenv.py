"""The JSON-RPC that OpenEnv's clients send to /mcp and in frames of type mcp, besides MCP."""

from typing import Any

from tropism.core.session.session import EnvironmentState
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import LiveSession
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.tools import rpc
from tropism.serve.tools.actions import ActionTools
from tropism.wire.codec import encode

SESSION_METHODS = ("tools/list", "tools/call")
METHODS = ("openenv/session/close", *SESSION_METHODS)  # those that need a session


def is_openenv_request(message: Any) -> bool:
    """Whether this is OpenEnv's dialect of JSON-RPC, or no JSON-RPC at all, rather than MCP."""
    if not rpc.is_request(message):
        return not isinstance(message, dict) or "result" not in message  # an MCP client may send a reply
    params = message.get("params")
    has_session_id = isinstance(params, dict) and "session_id" in params
    return message["method"].startswith("openenv/") or (message["method"] in SESSION_METHODS and has_session_id)


async def respond(
    message: Any, environment: ServedEnvironment, owner: str, sessions: SessionRegistry
) -> dict[str, Any]:
    """The reply; every error is a JSON-RPC error, as OpenEnv's clients expect."""
    if not rpc.is_request(message):
        return rpc.invalid_request(message)
    id, method = message.get("id"), message["method"]
    try:
        params = rpc.read_params(message)
        if method == "openenv/session/create":
            return rpc.reply(id, {"session_id": (await sessions.open(environment, owner)).id, "step_count": 0})
        if method not in METHODS:
            raise rpc.unknown_method(method)
        session = await sessions.find(str(params.get("session_id")), environment, owner)
        return await respond_in_session(message, session, sessions)
    except Exception as error:  # the outermost level: every error gets a reply
        return rpc.exception_error(id, error, environment=environment.id)


async def respond_in_session(message: Any, session: LiveSession, sessions: SessionRegistry) -> dict[str, Any]:
    """As `respond`, with the session of the socket or of the request."""
    if not rpc.is_request(message):
        return rpc.invalid_request(message)
    id, method, tools = message.get("id"), message["method"], ActionTools(session)
    try:
        params = rpc.read_params(message)
        if method == "openenv/session/close":
            step_count = session.session.step_count
            await sessions.close(session)
            return rpc.reply(id, {"session_id": session.id, "closed": True, "step_count": step_count})
        if method == "tools/list":
            return rpc.reply(id, {"tools": await tools.list()})
        if method == "tools/call":
            if session.session.lifecycle is EnvironmentState.CREATED:  # a tool of OpenEnv needs no reset before it
                await session.perform("reset", {})
            return rpc.reply(id, _content(await tools.call(*rpc.read_arguments(params))))
        raise rpc.unknown_method(method)
    except Exception as error:  # the outermost level: every error gets a reply
        return rpc.exception_error(id, error, environment=session.environment.id)


def _content(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": encode(value).decode()}], "data": value, "isError": False}
