"""A client without input or output: generators that yield what to do and are sent what came of it.

Every rule of the protocol is here, once; `Client` and `AsyncClient` only carry it out.
"""

import json
import secrets
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from tropism.client.result import StepResult
from tropism.errors import ServerError, StateError, ValidationError
from tropism.wire.messages import MESSAGES, Action, State

REFUSED, TOO_LARGE = 1008, 1009  # codes that a socket is closed with
STARTING = 3.0  # seconds that a server gets to be there at all
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between attempts to connect


class Connect(NamedTuple):
    """Open a socket; raises LostError where that fails, ServerError where the server refuses it."""

    url: str
    headers: dict[str, str]


class Exchange(NamedTuple):
    """Send a frame and wait for its reply; raises LostError where the socket closes first, SilenceError where
    the reply does not come in time."""

    frame: str | bytes


class Sleep(NamedTuple):
    seconds: float


class Hangup(NamedTuple):
    """Send a last frame, if any, and close the socket."""

    frame: str | None


class LostError(Exception):
    """The socket is gone, or could not be opened."""


class SilenceError(Exception):
    """The socket is there, but no reply came in time."""


Effect = Connect | Exchange | Sleep | Hangup
T = TypeVar("T")
Talk = Generator[Effect, Any, T]


@dataclass
class Patience:
    """Longer and longer pauses between attempts, up to `most` seconds in all."""

    most: float
    waited: float = 0.0
    pause: float = FIRST_PAUSE

    def wait(self, failure: str) -> Talk[None]:
        if self.waited >= self.most:
            raise ServerError("UNREACHABLE", failure)
        yield Sleep(self.pause)
        self.waited, self.pause = self.waited + self.pause, min(LONGEST_PAUSE, self.pause * 2)


@dataclass
class Protocol:
    """One client's side: where the server is, which session is ours, and how to get back to it."""

    url: str
    token: str | None = None
    reconnect: float = 30.0
    session_id: str | None = None
    environment: str | None = None
    connected: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.netloc:
            raise ValidationError("url", self.url, "an address such as 'http://localhost:8000/envs/Echo-v0'")
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        self._parts = parts._replace(scheme=scheme, path=parts.path.rstrip("/") + "/ws", query="", fragment="")

    def reset(self, seed: int | None, options: Mapping[str, Any] | None, episode_id: str | None) -> Talk[StepResult]:
        asked = {"seed": seed, "options": options, "episode_id": episode_id}
        reply = yield from self.request("reset", {name: value for name, value in asked.items() if value is not None})
        self.session_id = reply.get("session_id", self.session_id)
        self.environment = reply.get("environment", self.environment)
        return self._result(reply)

    def step(self, action: Any) -> Talk[StepResult]:
        return self._result((yield from self.request("step", _fields(action))))

    def state(self) -> Talk[State]:
        reply = yield from self.request("state")
        return State(episode_id=reply.get("episode_id"), step_count=reply.get("step_count", 0))

    def snapshot(self) -> Talk[str]:
        return (yield from self.request("snapshot", {}))["snapshot_id"]

    def restore(self, snapshot_id: str) -> Talk[StepResult]:
        return self._result((yield from self.request("restore", {"from": snapshot_id})))

    def fork(self, origin: str, seed: int | None, step: int | None) -> Talk["Protocol"]:
        """The protocol of a client of the new session."""
        if step is not None and origin != "now":
            raise ValidationError("step", step, f"None, to fork from the snapshot {origin}, or no snapshot")
        data: dict[str, Any] = {"from": origin if step is None else {"step": step}}
        data |= {} if seed is None else {"seed": seed}
        reply = yield from self.request("fork", data)
        return Protocol(self.url, self.token, self.reconnect, reply["session_id"], self.environment)

    def history(self, start: int) -> Talk[dict[str, Any]]:
        return (yield from self.request("history", {"from": start}))

    def close(self) -> Talk[None]:
        """End the session at the server; if that cannot be reached, the session expires there."""
        if self.closed:
            return
        self.closed = True
        self.reconnect = 0.0
        with suppress(LostError, ServerError):
            if not self.connected and self.session_id is not None:
                yield from self._connect()
            if self.connected:
                yield Hangup('{"type":"close"}')

    def request(self, kind: str, data: dict[str, Any] | None = None) -> Talk[Any]:
        """The data of the reply. After a lost connection the same request is sent again, and done once."""
        frame: dict[str, Any] = {"type": kind} if data is None else {"type": kind, "data": data}
        if self.session_id is not None:  # only our own servers know request ids, and they name the session
            frame["request_id"] = secrets.token_hex(8)
        text, patience = _encode(frame), Patience(self.reconnect)
        while True:
            yield from self.ensure_connected()
            try:
                return read((yield Exchange(text)))
            except LostError as failure:
                self.connected = False
                if self.session_id is None and kind != "reset":
                    words = f"the connection was lost, and with it the episode: {failure}"
                    raise ServerError("SESSION_ERROR", words) from None
                yield from patience.wait(f"{self.url} hangs up on this request: {failure}")
            except SilenceError:
                self.connected = False  # the reply may still come, and is not the next one's
                words = f"no reply to {kind} came in time; it may still be done, as state() would tell"
                raise ServerError("TIMEOUT", words) from None
            except ServerError as error:
                if error.code == "TOO_LARGE":
                    self.connected = False
                if error.code in ("SESSION_ERROR", "DIVERGED"):
                    yield from self._forget_session()
                raise

    def _forget_session(self) -> Talk[None]:
        """The server does not know our session any more, or cannot go on with it: a reset opens another."""
        self.session_id, self.connected = None, False
        yield Hangup(None)

    def ensure_connected(self) -> Talk[None]:
        if self.closed:
            raise StateError("client", "closed", "an open client", "the client is closed; make a new one")
        if not self.connected:
            yield from self._connect()

    def _connect(self) -> Talk[None]:
        patience = Patience(self.reconnect if self.session_id is not None else min(self.reconnect, STARTING))
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        query = {} if self.session_id is None else {"session_id": self.session_id}
        url = urlunsplit(self._parts._replace(query=urlencode(query)))
        while True:
            try:
                yield Connect(url, headers)
            except LostError as failure:
                yield from patience.wait(f"no server at {self.url}: {failure}")
            else:
                self.connected = True
                return

    def _result(self, reply: dict[str, Any]) -> StepResult:
        done = bool(reply.get("done", False))
        observation = self._typed(reply)
        return StepResult(
            observation=observation,
            reward=reply.get("reward"),
            done=done,
            terminated=bool(reply.get("terminated", done)),
            truncated=bool(reply.get("truncated", False)),
            metadata=reply.get("metadata"),
            error=(reply.get("observation") or {}).get("error"),
        )

    def _typed(self, reply: dict[str, Any]) -> Any:
        """The observation as the message of a known environment, or as the dict that came."""
        observation = reply.get("observation", {})
        message = MESSAGES.get(self.environment or "")
        if message is None:
            return observation
        told = {**observation, "reward": reply.get("reward"), "done": reply.get("done", False)}
        return msgspec.convert(told, message)


def lost(error: Exception) -> Exception:
    """What it means that a socket failed: a server may have said why it hangs up, anything else may pass."""
    close = getattr(error, "rcvd", None)  # of websockets' ConnectionClosed; other errors have none
    if close is not None and close.code == TOO_LARGE:
        return ServerError("TOO_LARGE", close.reason or "the request is larger than the server reads")
    if close is not None and close.code == REFUSED and close.reason:
        return ServerError(close.reason, f"the server hung up: {close.reason}")
    return LostError(str(error) or type(error).__name__)


def refused(status: int, body: bytes | bytearray | None) -> Exception:
    """What it means that a server answers a socket with an HTTP status."""
    try:
        told = json.loads(body or b"")
        return ServerError(told["code"], told["message"])
    except (ValueError, TypeError, KeyError):  # not our server, or something in front of it
        return LostError(f"HTTP {status}")


def read(reply: str | bytes) -> Any:
    """The data of a reply frame, or the error that it carries."""
    frame = json.loads(reply)
    if frame.get("type") != "error":
        return frame.get("data")
    code, message = frame["data"].get("code", "UNKNOWN"), frame["data"].get("message", "refused")
    if code == "VALIDATION_ERROR":
        raise ValidationError("request", code, "a valid request", message)
    if code == "STATE_ERROR":
        raise StateError("lifecycle", code, "another call", message)
    raise ServerError(code, message, frame["data"].get("id"))


def _fields(action: Any) -> dict[str, Any]:
    if isinstance(action, Action):
        return asdict(action)
    if isinstance(action, Mapping):
        return dict(action)
    return {"text": action} if isinstance(action, str) else {"value": action}


def _encode(frame: dict[str, Any]) -> str:
    try:
        return json.dumps(frame, allow_nan=False, default=_plain)
    except ValueError:
        raise ValidationError("action", frame.get("data"), "numbers that JSON has: no NaN, no infinity") from None


def _plain(value: Any) -> Any:
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise ValidationError("action", value, "values that JSON has")
