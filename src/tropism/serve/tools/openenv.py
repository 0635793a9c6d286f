"""The JSON-RPC that OpenEnv's clients send to /mcp, besides MCP."""

from typing import Any

from tropism.errors import ServerError, ValidationError
from tropism.serve import errors
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.tools.tools import Tools
from tropism.wire.codec import encode

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, SERVER_ERROR = -32700, -32600, -32601, -32602, -32000
SESSION_METHODS = ("tools/list", "tools/call")
METHODS = ("openenv/session/close", *SESSION_METHODS)  # those that need a session


def is_openenv_request(request: Any) -> bool:
    """Whether this is OpenEnv's dialect of JSON-RPC, or no JSON-RPC at all, rather than MCP."""
    if not _is_request(request):
        return True
    params = request.get("params")
    has_session_id = isinstance(params, dict) and "session_id" in params
    return request["method"].startswith("openenv/") or (request["method"] in SESSION_METHODS and has_session_id)


async def respond(
    request: Any, environment: ServedEnvironment, owner: str, sessions: SessionRegistry, tools: Tools
) -> dict[str, Any]:
    """The reply; every error is a JSON-RPC error, as OpenEnv's clients expect."""
    id = request.get("id") if isinstance(request, dict) else None
    if not _is_request(request):
        return error(id, INVALID_REQUEST, 'expected {"jsonrpc": "2.0", "method": …, "id": …}')
    params = request.get("params") or {}
    if not isinstance(params, dict):
        return error(id, INVALID_PARAMS, "params must be an object")
    try:
        result = await _result(request["method"], params, environment, owner, sessions, tools)
    except Exception as reason:  # the outermost level: every error gets a reply
        server_error = errors.to_server_error(reason, environment=environment.id)
        code = {"NO_METHOD": NO_METHOD, "SESSION_ERROR": INVALID_PARAMS}.get(server_error.code, SERVER_ERROR)
        return error(id, code, server_error.message, errors.error_json(server_error))
    return {"jsonrpc": "2.0", "id": id, "result": result}


async def _result(
    method: str,
    params: dict[str, Any],
    environment: ServedEnvironment,
    owner: str,
    sessions: SessionRegistry,
    tools: Tools,
) -> dict[str, Any]:
    if method == "openenv/session/create":
        return {"session_id": (await sessions.open(environment, owner)).id}
    if method not in METHODS:
        raise ServerError("NO_METHOD", f"unknown method {method!r}")
    session = await sessions.find(str(params.get("session_id")), environment, owner)
    if method == "openenv/session/close":
        await sessions.close(session)
        return {"session_id": session.id, "closed": True}
    if method == "tools/list":
        await environment.prepare_form(sessions.threads)
        return {"tools": tools.list(environment)}
    arguments = params.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise ValidationError("arguments", arguments, "an object")
    return _content(await tools.call(str(params.get("name")), arguments | {"session_id": session.id}, owner))


def _is_request(request: Any) -> bool:
    version, method = (request.get(name) if isinstance(request, dict) else None for name in ("jsonrpc", "method"))
    return version == "2.0" and isinstance(method, str)


def _content(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": encode(value).decode()}], "data": value, "isError": False}


def error(id: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    body = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": id, "error": body if data is None else body | {"data": data}}
