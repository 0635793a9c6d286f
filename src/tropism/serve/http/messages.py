"""Routes, requests and responses of the HTTP interface, and how they are read and sent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, NamedTuple

import msgspec

from tropism.errors import ServerError
from tropism.serve import errors
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import LiveSession
from tropism.serve.session.requests import convert, parse_whole_number
from tropism.serve.settings import Settings
from tropism.wire.codec import decode, encode

Headers = list[tuple[bytes, bytes]]

SAFE_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))  # on every reply
CSP = b"content-security-policy"
NO_FRAMES = (CSP, b"frame-ancestors 'none'")  # on every reply without a policy of its own
ERROR_HEADERS = {"UNAUTHORIZED": (b"www-authenticate", b"Bearer"), "TOO_SLOW": (b"connection", b"close")}
NO_CONTENT = 204
SESSION_HEADER = "x-session-id"  # in ASGI's lower case


@dataclass(slots=True)
class HttpRequest:
    """A request about one environment, whose paths begin with `root`.

    `data` is the body, for a GET with the query; `parameters` are parts of the path. `kind` and `type` are those of the
    route. `session` is the session of the caller, if it has been found.
    """

    scope: Any
    root: str
    environment: ServedEnvironment
    kind: str
    type: Any
    parameters: dict[str, str]
    data: dict[str, Any]
    session: LiveSession | None = None

    @property
    def owner(self) -> str:
        return self.scope["owner"]

    def take_request_id(self) -> str | None:
        """Remove the request id from the data."""
        request_id = self.data.pop("request_id", None)
        return None if request_id is None else convert(request_id, str)

    def parse(self) -> Any:
        """The data as the request type of the route."""
        return convert(self.data, self.type)


class Response(msgspec.Struct):
    """An HTTP response."""

    body: bytes
    status: int = 200
    media_type: str = "application/json"
    policy: bytes = NO_FRAMES[1]
    headers: Headers = []

    def all_headers(self) -> Headers:
        headers = [*SAFE_HEADERS, (CSP, self.policy), *self.headers]
        if self.status != NO_CONTENT:
            headers.append((b"content-type", self.media_type.encode()))
            headers.append((b"content-length", str(len(self.body)).encode()))
        return headers


class Trait(Flag):
    """What else is true of a route."""

    NONE = 0
    SESSION = auto()  # concerns the session that the header X-Session-Id or a cookie names
    REQUEST_ID = auto()  # takes a request_id, which makes it idempotent
    PUBLIC = auto()  # needs no token: a browser loads the page before it has one
    ROOT = auto()  # not under /envs/{id}
    RPC = auto()  # JSON-RPC, whose messages an OpenAPI document cannot describe


class Route(NamedTuple):
    """One request of the HTTP interface. Its path follows /envs/{id}, or stands alone for the default environment.

    `request` is the type of the body, or of the query of a GET; bytes for any body, None if neither is read. `reply`
    is the type of the JSON reply, or the media types of another one.
    """

    method: str
    path: str
    request: Any
    reply: Any
    handler: Callable[[Any, HttpRequest], Awaitable[Response]]
    summary: str
    traits: Trait = Trait.NONE


class OuterMetadata(msgspec.Struct):
    """Whether a reply has metadata outside of its observation."""

    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_outer_metadata = msgspec.json.Decoder(OuterMetadata)


def with_metadata(body: bytes) -> bytes:
    """The reply to a reset or step with `metadata`, which is null if empty, as OpenEnv's HTTP interface has it."""
    absent = _outer_metadata.decode(body).metadata is msgspec.UNSET
    return b'{"metadata":null,' + body[1:] if absent else body


def json_response(value: Any) -> Response:
    return Response(encode(value))


def error_response(error: ServerError) -> Response:
    headers = [ERROR_HEADERS[error.code]] if error.code in ERROR_HEADERS else []
    return Response(encode(errors.error_json(error)), errors.STATUS[error.code], headers=headers)


async def send_response(scope: Any, send: Any, response: Response) -> None:
    """Reply to an HTTP request, or to a socket before it is accepted."""
    prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{prefix}.start", "status": response.status, "headers": response.all_headers()})
    await send({"type": f"{prefix}.body", "body": response.body})


def add_headers(send: Any, headers: Headers) -> Any:
    """A `send` that adds these headers to the response."""

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return send_with_headers


async def read_data(scope: Any, receive: Any, settings: Settings, kind: Any) -> dict[str, Any]:
    """The JSON body, for a GET with the query parameters; a body of any other kind is the field `data`."""
    body = await read_body(scope, receive, settings)
    if kind is bytes:
        return {"data": body}
    data = decode(body) if body.strip() else {}
    if not isinstance(data, dict):
        raise ServerError("VALIDATION_ERROR", f"the body is a JSON {type(data).__name__}; expected an object")
    if scope["method"] == "GET":
        data |= {name: _query_value(text) for name, text in scope["query"].items()}
    return data


async def read_body(scope: Any, receive: Any, settings: Settings) -> bytes:
    """The whole body, within the limits on size and time."""
    max_body = settings.max_body
    length = scope["header_map"].get("content-length", "0")
    if int(length) > max_body:
        raise ServerError("TOO_LARGE", f"the body has {length} bytes; at most {max_body} are allowed")
    chunks: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(settings.body_timeout):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ServerError("TOO_SLOW", "the connection closed before the body was complete")
                chunks.append(message.get("body", b""))
                size, more = size + len(chunks[-1]), message.get("more_body", False)
                if size > max_body:
                    raise ServerError("TOO_LARGE", f"the body has more than {max_body} bytes")
    except TimeoutError:
        raise ServerError("TOO_SLOW", f"the body was not complete in {settings.body_timeout} s") from None
    return b"".join(chunks)


def _query_value(text: str) -> Any:
    number = parse_whole_number(text)
    return text if number is None else number
