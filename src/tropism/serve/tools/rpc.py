"""JSON-RPC 2.0: requests, replies and errors, for MCP and for OpenEnv's clients."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from tropism.errors import ServerError, ValidationError
from tropism.serve import errors
from tropism.wire.codec import decode, encode

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, SERVER_ERROR = -32700, -32600, -32601, -32602, -32000
JSON_RPC_CODES = {"NO_METHOD": NO_METHOD, "SESSION_ERROR": INVALID_PARAMS}


@runtime_checkable
class ToolSet(Protocol):
    """Tools that a client can list and call."""

    async def instructions(self) -> str:
        """What an agent should know before it calls a tool."""
        ...

    async def list(self) -> list[dict[str, Any]]:
        """Name, description and input schema of each tool."""
        ...

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]: ...


def is_request(message: Any) -> bool:
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)


def is_reply(message: Any) -> bool:
    return isinstance(message, dict) and "result" in message and not is_request(message)


async def respond_to_text(
    text: bytes | str, respond: Callable[[Any], Awaitable[dict[str, Any] | None]]
) -> dict[str, Any] | None:
    """The reply of `respond` to the message in this text; an error if it is not JSON."""
    try:
        message = decode(text)
    except ServerError as reason:
        return error(None, PARSE_ERROR, reason.message)
    return await respond(message)


async def respond(
    message: Any, perform: Callable[[str, dict[str, Any]], Awaitable[Any]], **context: Any
) -> dict[str, Any]:
    """The reply with what `perform` returns for the method and params of a request, or with the error it raises.

    An unexpected error is logged with `context`.
    """
    id = message.get("id") if isinstance(message, dict) else None
    if not is_request(message):
        return error(id, INVALID_REQUEST, 'expected {"jsonrpc": "2.0", "method": …, "id": …}')
    try:
        result = await perform(message["method"], _read_params(message))
    except Exception as exception:  # the outermost level: every error gets a reply
        reason = errors.to_server_error(exception, tool=message["method"], **context)
        return error(id, JSON_RPC_CODES.get(reason.code, SERVER_ERROR), reason.message, errors.error_json(reason))
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error(id: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    body = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": id, "error": body if data is None else body | {"data": data}}


def _read_params(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params") or {}
    if not isinstance(params, dict):
        raise ServerError("SESSION_ERROR", "params must be an object")
    return params


def read_arguments(params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a tool call."""
    arguments = params.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise ValidationError("arguments", arguments, "an object")
    return str(params.get("name")), arguments


def text_content(value: Any) -> dict[str, Any]:
    """The part of a tool's result that all clients read."""
    return {"content": [{"type": "text", "text": encode(value).decode()}]}


def unknown_method(method: str) -> ServerError:
    return ServerError("NO_METHOD", f"unknown method {method!r}")
