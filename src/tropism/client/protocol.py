"""The client protocol without I/O: generators that yield effects and receive their results.

All rules of the protocol are here; `Client` and `AsyncClient` only perform the effects.
"""

import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close

from tropism.client.result import StepResult, message_fields
from tropism.errors import ServerError, StateError, StepConflictError, ValidationError
from tropism.wire.messages import State, observation_type

FIRST_CONNECT = 3.0  # seconds of attempts before the first session
RESUME_FAILED = "EXECUTION_ERROR"  # the environment raised while its episode was replayed, perhaps not again
FIRST_PAUSE, MAX_PAUSE = 0.05, 2.0  # seconds between attempts to connect


class Connect(NamedTuple):
    """Open a socket; raises ConnectionLostError if that fails, ServerError if the server rejects it."""

    url: str
    headers: dict[str, str]


class RoundTrip(NamedTuple):
    """Send a frame and wait for its reply; raises ConnectionLostError if the socket closes first, ReplyTimeoutError on
    timeout."""

    frame: str | bytes


class Sleep(NamedTuple):
    seconds: float


class Disconnect(NamedTuple):
    """Send a last frame, if any, and close the socket."""

    frame: str | None


class ConnectionLostError(Exception):
    """The socket was closed or could not be opened."""


class ReplyTimeoutError(Exception):
    """The socket is open, but the reply timed out."""


Effect = Connect | RoundTrip | Sleep | Disconnect
T = TypeVar("T")
EffectGenerator = Generator[Effect, Any, T]


@dataclass
class Backoff:
    """Exponentially growing pauses between attempts, up to `limit` seconds in total."""

    limit: float
    waited: float = 0.0
    pause: float = FIRST_PAUSE

    def wait(self, failure: str) -> EffectGenerator[None]:
        if self.waited >= self.limit:
            raise ServerError("UNREACHABLE", failure)
        yield Sleep(self.pause)
        self.waited, self.pause = self.waited + self.pause, min(MAX_PAUSE, self.pause * 2)


@dataclass
class Protocol:
    """The state of one client: server URL, session, and connection."""

    url: str
    token: str | None = None
    reconnect: float = 30.0
    session_id: str | None = None
    environment: str | None = None
    connected: bool = False
    closed: bool = False
    step_count: int | None = None  # of the episode, as far as it is known
    episode_id: str | None = None
    reconnected: bool = False  # since the last step

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.netloc:
            raise ValidationError("url", self.url, "a URL such as 'http://localhost:8000/envs/Echo-v0'")
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        self._parts = parts._replace(scheme=scheme, path=parts.path.rstrip("/") + "/ws", query="", fragment="")

    def reset(
        self, seed: int | None, options: Mapping[str, Any] | None, episode_id: str | None
    ) -> EffectGenerator[StepResult]:
        arguments = {"seed": seed, "options": options, "episode_id": episode_id}
        data = {name: value for name, value in arguments.items() if value is not None}
        reply = yield from self.request("reset", data)
        self.session_id = reply.get("session_id", self.session_id)
        self.environment = reply.get("environment", self.environment)
        self.episode_id = reply.get("episode_id")
        return self._result(reply)

    def step(self, action: Any) -> EffectGenerator[StepResult]:
        fields = {"text": action} if isinstance(action, str) else message_fields(action)
        return self._result((yield from self.request("step", fields)))

    def state(self) -> EffectGenerator[State]:
        reply = yield from self.request("state")
        self.step_count, self.episode_id = reply.get("step_count"), reply.get("episode_id")
        return State(episode_id=reply.get("episode_id"), step_count=reply.get("step_count", 0))

    def snapshot(self) -> EffectGenerator[str]:
        return (yield from self.request("snapshot", {}))["snapshot_id"]

    def restore(self, snapshot_id: str) -> EffectGenerator[StepResult]:
        reply = yield from self.request("restore", {"from": snapshot_id})
        self.episode_id = reply.get("episode_id")
        return self._result(reply)

    def fork(self, origin: str, seed: int | None, step: int | None) -> EffectGenerator["Protocol"]:
        """The protocol for a client of the new session."""
        if step is not None and origin != "now":
            raise ValidationError("step", step, f"None with the snapshot {origin}: fork from either")
        data: dict[str, Any] = {"from": origin if step is None else {"step": step}}
        data |= {} if seed is None else {"seed": seed}
        reply = yield from self.request("fork", data)
        return Protocol(
            self.url,
            self.token,
            self.reconnect,
            reply["session_id"],
            self.environment,
            step_count=reply.get("step_count"),
            episode_id=reply.get("episode_id"),
        )

    def history(self, start: int) -> EffectGenerator[dict[str, Any]]:
        return (yield from self.request("history", {"from": start}))

    def files(self) -> EffectGenerator[dict[str, int]]:
        return (yield from self.request("files", {}))["files"]

    def read_file(self, path: str) -> EffectGenerator[bytes]:
        return b64decode((yield from self.request("read_file", {"path": path}))["data"])

    def write_file(self, path: str, data: bytes) -> EffectGenerator[None]:
        yield from self.request("write_file", {"path": path, "data": b64encode(data).decode()})

    def tools(self) -> EffectGenerator[list[dict[str, Any]]]:
        reply = yield from self.request("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
        return reply["result"]["tools"]

    def close(self) -> EffectGenerator[None]:
        """Close the session on the server; if it is unreachable, the session expires there."""
        if self.closed:
            return
        self.closed = True
        self.reconnect = 0.0
        with suppress(ConnectionLostError, ServerError):
            if not self.connected and self.session_id is not None:
                yield from self._connect()
            if self.connected:
                yield Disconnect('{"type":"close"}')

    def request(self, kind: str, data: dict[str, Any] | None = None) -> EffectGenerator[Any]:
        """The data of the reply. After a lost connection the request is resent; its id makes it idempotent."""
        frame: dict[str, Any] = {"type": kind} if data is None else {"type": kind, "data": data}
        if self.session_id is not None:  # servers that report a session id also support request ids
            frame["id"] = frame["request_id"] = secrets.token_hex(8)
            frame |= self._position() if kind == "step" else {}
        text, backoff = _encode(frame), Backoff(self.reconnect)
        while True:
            yield from self.ensure_connected()
            try:
                return decode_reply((yield RoundTrip(text)), frame.get("id"))
            except ConnectionLostError as failure:
                self.connected = False
                yield Disconnect(None)
                if self.session_id is None and kind != "reset":
                    message = f"the connection was lost and the episode has ended: {failure}"
                    raise ServerError("SESSION_ERROR", message) from None
                yield from backoff.wait(f"{self.url} closes the connection on this request: {failure}")
            except ReplyTimeoutError:
                self.connected = False  # a late reply must not be taken for the next one
                self.step_count = None
                message = f"timeout waiting for the reply to {kind}; it may still take effect: check state()"
                raise ServerError("TIMEOUT", message) from None
            except ServerError as error:
                if error.code == "TOO_LARGE" or self.reconnected:  # the server closes a socket that it cannot resume
                    self.connected = False
                    yield Disconnect(None)
                if error.code in ("SESSION_ERROR", "DIVERGED"):
                    yield from self._drop_session()
                raise

    def _position(self) -> dict[str, Any]:
        """Where the episode must be for a step."""
        position: dict[str, Any] = {} if self.step_count is None else {"after": self.step_count}
        if self.reconnected and self.episode_id is not None:
            position["episode_id"] = self.episode_id
        return position

    def _drop_session(self) -> EffectGenerator[None]:
        """The session no longer exists on the server or cannot continue: a reset creates another."""
        self.session_id, self.connected, self.step_count = None, False, None
        yield Disconnect(None)

    def ensure_connected(self) -> EffectGenerator[None]:
        if self.closed:
            raise StateError("client", "closed", "an open client", "the client is closed; create a new one")
        if not self.connected:
            yield from self._connect()

    def _connect(self) -> EffectGenerator[None]:
        backoff = Backoff(self.reconnect if self.session_id is not None else min(self.reconnect, FIRST_CONNECT))
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        query = {} if self.session_id is None else {"session_id": self.session_id}
        url = urlunsplit(self._parts._replace(query=urlencode(query)))
        while True:
            try:
                yield Connect(url, headers)
            except ConnectionLostError as failure:
                yield from backoff.wait(f"no server at {self.url}: {failure}")
            else:
                self.connected, self.reconnected = True, self.session_id is not None
                return

    def _result(self, reply: dict[str, Any]) -> StepResult:
        self.step_count, self.reconnected = reply.get("step_count"), False
        done = bool(reply.get("done", False))
        return StepResult(
            observation=self._to_message(reply),
            reward=reply.get("reward"),
            done=done,
            terminated=bool(reply.get("terminated", done)),
            truncated=bool(reply.get("truncated", False)),
            metadata=reply.get("metadata"),
            error=(reply.get("observation") or {}).get("error"),
        )

    def _to_message(self, reply: dict[str, Any]) -> Any:
        """The observation as a typed message if the environment is known, else as a dict."""
        observation = reply.get("observation", {})
        message = observation_type(self.environment or "")
        if message is None:
            return observation
        metadata = dict(observation.get("metadata") or {})
        names = message.__dataclass_fields__
        lifted = {name: metadata.pop(name) for name in list(metadata) if name in names}
        outcome = {"reward": reply.get("reward"), "done": reply.get("done", False), "metadata": metadata}
        return msgspec.convert(lifted | observation | outcome, message)


def effect_error(effect: Effect, error: Exception) -> Exception:
    """The error to throw into the protocol for a failed effect; ConnectionLostError may be temporary."""
    match error:
        case InvalidStatus(response=response):
            return _handshake_error(response.status_code, response.body)
        case TimeoutError() if isinstance(effect, RoundTrip):
            return ReplyTimeoutError()
        case ConnectionClosed(rcvd=Close(code=1009, reason=reason)):  # too large
            return ServerError("TOO_LARGE", reason or "the request exceeds the server's size limit")
        case ConnectionClosed(rcvd=Close(code=1008, reason=reason)) if reason not in ("", RESUME_FAILED):  # policy
            return ServerError(reason, f"the server closed the connection: {reason}")
        case _:
            return ConnectionLostError(str(error) or type(error).__name__)


def _handshake_error(status: int, body: bytes | bytearray | None) -> Exception:
    """The error for a WebSocket handshake that failed with an HTTP status."""
    try:
        error = json.loads(body or b"")
        return ServerError(error["code"], error["message"])
    except (ValueError, TypeError, KeyError):  # not a Tropism server, or a proxy in front of it
        return ConnectionLostError(f"HTTP {status}")


def decode_reply(reply: str | bytes, id: str | None = None) -> Any:
    """The data of a reply frame; raises the error of an error frame, and for a reply to another request than `id`."""
    frame = json.loads(reply)
    if frame.get("id", id) != id:
        raise ConnectionLostError("it delivered a reply twice")
    if frame.get("type") != "error":
        return frame.get("data")
    code, message = frame["data"].get("code", "UNKNOWN"), frame["data"].get("message", "refused")
    if code == RESUME_FAILED and id is not None and "id" not in frame:  # not of this request, which is resent
        raise ConnectionLostError(message)
    if code == "STEP_CONFLICT":
        raise StepConflictError(message, frame["data"].get("step_count", 0))
    if code == "VALIDATION_ERROR":
        raise ValidationError("request", code, "a valid request", message)
    if code == "STATE_ERROR":
        raise StateError("lifecycle", code, "another call", message)
    raise ServerError(code, message, frame["data"].get("id"))


def _encode(frame: dict[str, Any]) -> str:
    try:
        return json.dumps(frame, allow_nan=False, default=_plain)
    except ValueError:
        raise ValidationError("action", frame.get("data"), "finite numbers: JSON has no NaN or infinity") from None


def _plain(value: Any) -> Any:
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise ValidationError("action", value, "values that JSON can represent")
