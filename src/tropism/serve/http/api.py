"""The HTTP API: stateful, with one session per caller."""

import asyncio
from typing import Any

import msgspec

from tropism.errors import DivergedError, ServerError, StateError, ValidationError
from tropism.serve import errors
from tropism.serve.http.auth import CSP, NO_FRAMES, SAFE_HEADERS, cookie
from tropism.serve.metrics import Metrics
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import LiveSession
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.session.requests import EmptyRequest, convert, parse_whole_number
from tropism.serve.session.timeout import step_within
from tropism.serve.settings import Settings
from tropism.wire.codec import decode, encode

SESSION_HEADER = "x-session-id"
NO_CONTENT = 204


class StepRequest(msgspec.Struct, forbid_unknown_fields=True):
    action: dict[str, Any]
    timeout_s: float | None = None
    request_id: str | None = None


class Response(msgspec.Struct):
    """An HTTP response; the id of `session` is sent in a header and a cookie."""

    body: bytes
    status: int = 200
    media_type: bytes = b"application/json"
    session: LiveSession | None = None
    policy: bytes = NO_FRAMES[1]
    headers: list[tuple[bytes, bytes]] = []


class HttpApi:
    """Performs the session requests of all environments; `kind` is the last part of the path."""

    def __init__(self, sessions: SessionRegistry, metrics: Metrics, settings: Settings):
        self.sessions = sessions
        self.metrics = metrics
        self.settings = settings

    async def perform(self, kind: str, scope: Any, receive: Any, environment: ServedEnvironment) -> Response:
        """A request of a session: reset, step, state, snapshot, fork, restore, history, close."""
        data = await self.data(scope, receive)
        session = await self._session(kind, scope, environment)
        is_new = session is None and kind == "reset"
        if is_new:
            session = await self.sessions.open(environment, scope["owner"])
        if session is None:
            raise _no_session_error(kind)
        scope["session"] = session
        try:
            body = await self._body(kind, session, data)
        except BaseException:
            if is_new:  # no session remains after a failed reset
                await self.sessions.close(session)
            raise
        self.metrics.count(kind)
        return Response(body, session=session if kind == "reset" else None)

    async def _body(self, kind: str, session: LiveSession, data: dict[str, Any]) -> bytes:
        if kind == "close":
            convert(data, EmptyRequest)
            await self.sessions.close(session)
            return encode({"closed": True})
        if kind != "step":
            request_id = data.pop("request_id", None)
            return await session.perform(kind, data, _request_id(request_id))
        request = convert(data, StepRequest)
        if request.timeout_s is None:
            return await session.perform("step", request.action, request.request_id)
        if not request.timeout_s > 0:
            raise ValidationError("timeout_s", request.timeout_s, "more than 0 seconds")
        return await step_within(session, request.timeout_s, request.action, request.request_id)

    async def _session(self, kind: str, scope: Any, environment: ServedEnvironment) -> LiveSession | None:
        """The session named by the header, else by the cookie.

        The cookie of an unknown session is ignored; for a reset, so is that of a session that cannot be resumed.
        """
        headers = scope["header_map"]
        if SESSION_HEADER in headers:
            return await self.sessions.find(headers[SESSION_HEADER], environment, scope["owner"])
        id = cookie(headers, cookie_name(environment))
        if id is None:
            return None
        try:
            return await self.sessions.find(id, environment, scope["owner"])
        except DivergedError:
            if kind != "reset":
                raise
        except ServerError as error:
            if error.code != "SESSION_ERROR":
                raise
        return None

    async def data(self, scope: Any, receive: Any) -> dict[str, Any]:
        """The JSON body; for a GET, the query parameters too."""
        body = await self.body(scope, receive)
        data = decode(body) if body.strip() else {}
        if not isinstance(data, dict):
            raise ServerError("VALIDATION_ERROR", f"the body is a JSON {type(data).__name__}; expected an object")
        if scope["method"] == "GET":
            data |= {name: _query_value(text) for name, text in scope["query"].items()}
        return data

    async def body(self, scope: Any, receive: Any) -> bytes:
        """The whole body, within the limits on size and time."""
        max_body = self.settings.max_body
        length = scope["header_map"].get("content-length", "0")
        if int(length) > max_body:
            raise ServerError("TOO_LARGE", f"the body has {length} bytes; at most {max_body} are allowed")
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ServerError("TOO_SLOW", "the connection closed before the body was complete")
                    chunks.append(message.get("body", b""))
                    size, more = size + len(chunks[-1]), message.get("more_body", False)
                    if size > max_body:
                        raise ServerError("TOO_LARGE", f"the body has more than {max_body} bytes")
        except TimeoutError:
            raise ServerError("TOO_SLOW", f"the body was not complete in {self.settings.body_timeout} s") from None
        return b"".join(chunks)


async def send_response(send: Any, response: Response, root: str) -> None:
    """Send a response; its session id goes into a header and into a cookie for this environment's paths."""
    headers = [*SAFE_HEADERS, (CSP, response.policy), *response.headers]
    if response.status != NO_CONTENT:
        headers.append((b"content-type", response.media_type))
        headers.append((b"content-length", str(len(response.body)).encode()))
    if response.session is not None:
        name, id = cookie_name(response.session.environment), response.session.id
        headers.append((SESSION_HEADER.encode(), id.encode()))
        headers.append((b"set-cookie", f"{name}={id}; Path={root or '/'}; HttpOnly; SameSite=Strict".encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def error_response(error: Exception, metrics: Metrics, scope: Any = None) -> Response:
    """The response to a failed request; the log line has its path and session."""
    session = None if scope is None else scope.get("session")
    context = {} if scope is None else {"path": scope["path"]} | ({} if session is None else session.log_context)
    reason = errors.to_server_error(error, **context)
    metrics.count_error(reason.code)
    response = Response(encode(errors.error_json(reason)), errors.STATUS[reason.code])
    if reason.code == "TOO_SLOW":
        response.headers = [(b"connection", b"close")]
    return response


def cookie_name(environment: ServedEnvironment) -> str:
    return f"tropism.{environment.id}"


def _no_session_error(kind: str) -> StateError:
    return StateError(
        "session",
        None,
        "a session",
        f"{kind} needs a session; POST /reset opens one and sets a cookie, or send the header X-Session-Id",
    )


def _request_id(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValidationError("request_id", value, "a string")
    return value


def _query_value(text: str) -> Any:
    number = parse_whole_number(text)
    return text if number is None else number
