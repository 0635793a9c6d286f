"""The HTTP surface: stateful, each caller with a session of its own."""

import asyncio
from typing import Any

import msgspec

from tropism.errors import DivergedError, ServerError, StateError, ValidationError
from tropism.serve import errors as refusal
from tropism.serve.http.auth import POLICY, SAFE, UNFRAMED, cookie
from tropism.serve.metrics import Metrics
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import ServedSession
from tropism.serve.session.registry import Sessions
from tropism.serve.session.requests import Nothing, convert, whole_number
from tropism.serve.settings import Settings
from tropism.wire.codec import decode, encode

HEADER = "x-session-id"
NO_CONTENT = 204


class StepBody(msgspec.Struct, forbid_unknown_fields=True):
    action: dict[str, Any]
    timeout_s: float | None = None
    request_id: str | None = None


class Answer(msgspec.Struct):
    """What goes back; `session` is told the caller, to be named from now on."""

    body: bytes
    status: int = 200
    media_type: bytes = b"application/json"
    session: ServedSession | None = None
    policy: bytes = UNFRAMED[1]
    headers: list[tuple[bytes, bytes]] = []


class Requests:
    """Answers the requests to one environment; `kind` is the last part of the path."""

    def __init__(self, sessions: Sessions, metrics: Metrics, settings: Settings):
        self.sessions = sessions
        self.metrics = metrics
        self.settings = settings

    async def perform(self, kind: str, scope: Any, receive: Any, environment: ServedEnvironment) -> Answer:
        """A request of a session: reset, step, state, snapshot, fork, restore, history, close."""
        data = await self.data(scope, receive)
        session = await self._session(kind, scope, environment)
        opened = session is None and kind == "reset"
        if opened:
            session = await self.sessions.open(environment, scope["owner"])
        if session is None:
            raise _no_session(kind)
        scope["session"] = session
        try:
            body = await self._body(kind, session, data)
        except BaseException:
            if opened:  # a reset that was refused leaves nothing behind
                await self.sessions.close(session)
            raise
        self.metrics.count(kind)
        return Answer(body, session=session if kind == "reset" else None)

    async def _body(self, kind: str, session: ServedSession, data: dict[str, Any]) -> bytes:
        if kind == "close":
            convert(data, Nothing)
            await self.sessions.close(session)
            return encode({"closed": True})
        if kind != "step":
            request_id = data.pop("request_id", None)
            return await session.perform(kind, data, _request_id(request_id))
        asked = convert(data, StepBody)
        if asked.timeout_s is None:
            return await session.perform("step", asked.action, asked.request_id)
        if not asked.timeout_s > 0:
            raise ValidationError("timeout_s", asked.timeout_s, "more than 0 seconds")
        return await session.step_within(asked.timeout_s, asked.action, asked.request_id)

    async def _session(self, kind: str, scope: Any, environment: ServedEnvironment) -> ServedSession | None:
        """The session named by the header, else by the cookie; a stale cookie is as good as none.

        So is, for a reset, the cookie of a session that cannot go on.
        """
        headers = scope["named"]
        if HEADER in headers:
            return await self.sessions.find(headers[HEADER], environment, scope["owner"])
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
        """What the body says; of a GET, what the address does."""
        body = await self.body(scope, receive)
        data = decode(body) if body.strip() else {}
        if not isinstance(data, dict):
            raise ServerError("VALIDATION_ERROR", f"the body is a JSON {type(data).__name__}; expected an object")
        if scope["method"] == "GET":
            data |= {name: _number(text) for name, text in scope["query"].items()}
        return data

    async def body(self, scope: Any, receive: Any) -> bytes:
        """The whole body, if it is not too large and does not take too long."""
        most = self.settings.max_body
        length = scope["named"].get("content-length", "0")
        if int(length) > most:
            raise ServerError("TOO_LARGE", f"the body has {length} bytes; at most {most} are read")
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
                    if size > most:
                        raise ServerError("TOO_LARGE", f"the body has more than {most} bytes")
        except TimeoutError:
            raise ServerError("TOO_SLOW", f"the body was not complete in {self.settings.body_timeout} s") from None
        return b"".join(chunks)


async def respond(send: Any, answer: Answer, root: str) -> None:
    """Send an answer; it names its session in a header and in a cookie for this environment's paths."""
    headers = [*SAFE, (POLICY, answer.policy), *answer.headers]
    if answer.status != NO_CONTENT:
        headers.append((b"content-type", answer.media_type))
        headers.append((b"content-length", str(len(answer.body)).encode()))
    if answer.session is not None:
        name, id = cookie_name(answer.session.environment), answer.session.id
        headers.append((HEADER.encode(), id.encode()))
        headers.append((b"set-cookie", f"{name}={id}; Path={root or '/'}; HttpOnly; SameSite=Strict".encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def refused(error: Exception, metrics: Metrics, scope: Any = None) -> Answer:
    """The answer to a request of this scope that failed; the log says which session it was about."""
    session = None if scope is None else scope.get("session")
    context = {} if scope is None else {"path": scope["path"]} | ({} if session is None else session.named)
    reason = refusal.refusal(error, **context)
    metrics.count_error(reason.code)
    answer = Answer(encode(refusal.data(reason)), refusal.STATUS[reason.code])
    if reason.code == "TOO_SLOW":
        answer.headers = [(b"connection", b"close")]
    return answer


def cookie_name(environment: ServedEnvironment) -> str:
    return f"tropism.{environment.id}"


def _no_session(kind: str) -> StateError:
    return StateError(
        "session",
        None,
        "a session",
        f"no session is named for {kind}; POST /reset opens one and sets a cookie, or send the header X-Session-Id",
    )


def _request_id(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValidationError("request_id", value, "a string")
    return value


def _number(text: str) -> Any:
    number = whole_number(text)
    return text if number is None else number
