"""The WebSocket surface: frames in, one reply each, in order."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from tropism.core.session.session import EnvironmentState
from tropism.errors import ServerError, StateError
from tropism.serve import errors as refusal
from tropism.serve.metrics import Metrics
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import PERFORMED, ServedSession, unknown_type
from tropism.serve.session.registry import Sessions
from tropism.serve.session.requests import convert
from tropism.serve.storage.protocol import settled
from tropism.serve.websocket.batch import Batch
from tropism.serve.websocket.fast_path import DirectSocket, direct_socket
from tropism.wire.codec import Frame, FrameId, Id, decode_frame, encode, frame_id, pack, unpack

BATCHED = ("open", "reset_batch", "step_batch")
OBSERVED = ("reset", "step", "restore")  # their reply is an observation
CLOSED = EnvironmentState.CLOSED
FRESH = encode({"episode_id": None, "step_count": 0})


class Connection:
    """One socket: the session it drives, and the batch it may have opened."""

    def __init__(self, sessions: Sessions, environment: ServedEnvironment, owner: str, metrics: Metrics):
        self.sessions = sessions
        self.environment = environment
        self.owner = owner
        self.metrics = metrics
        self.session: ServedSession | None = None
        self.batch: Batch | None = None
        self._store = sessions.store

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Speak ASGI until the socket closes; the session outlives it unless the caller closed it."""
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        try:
            if await self._resume(scope, send):
                scope["named"] = {}
                await self._converse(receive, send, direct_socket(scope))
        finally:
            if self.session is not None:
                self.session.attached -= 1
            if self.batch is not None:
                self.sessions.free_place(self.owner)

    async def _resume(self, scope: Any, send: Any) -> bool:
        """Take up the session named in the address, or say that there is none and hang up."""
        id = scope["query"].get("session_id")
        if id is None:
            return True
        try:
            self._attach(await self.sessions.find(id, self.environment, self.owner))
        except Exception as error:  # the outermost edge: every error has a reply
            reason = refusal.refusal(error, session_id=id)
            await send({"type": "websocket.send", "text": encode(_error(reason)).decode()})
            await send({"type": "websocket.close", "code": 1008, "reason": reason.code})
            return False
        return True

    def _attach(self, session: ServedSession) -> None:
        if self.session is not None:
            self.session.attached -= 1
        self.session = session
        session.attached += 1

    async def _converse(self, receive: Any, send: Any, direct: DirectSocket | None) -> None:
        if direct is not None:
            direct.answer_with(self._answer_now)
        while True:
            message = await _received(receive, direct)
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                reply = await self._answer_binary(message["bytes"])
            elif (words := await self._answer(text)) is not None:
                reply = {"text": words}
            else:
                await send({"type": "websocket.close", "code": 1000})
                return
            await self._after_others()
            await send({"type": "websocket.send", **reply})

    async def _after_others(self) -> None:
        """Let replies go first that wait for what led to them to be written."""
        with suppress(ServerError):  # which those hear
            await settled(self._store)

    async def _answer(self, text: str) -> str | None:
        """The reply to a text frame; None hangs up."""
        frame = None
        try:
            frame = decode_frame(text)
            if frame.type == "close":
                await self._close()
                return None
            kind, data = await self._reply(frame)
        except Exception as error:  # the outermost edge: every error has a reply
            reason = self._refusal(error)
            kind, data = "error", encode(refusal.data(reason))
        return _written(kind, data, frame_id(text) if frame is None else frame.id).decode()

    def _answer_now(self, text: bytes, send: Callable[[bytes], None]) -> bool:
        """Answer a request of a fast session; not what must wait, nor what is not well-formed."""
        session = self.session
        if session is None or self.sessions.stopping or session.session.lifecycle is CLOSED:
            return False
        try:
            frame = decode_frame(text)
        except ServerError:
            return False
        kind, data = frame.type, frame.data or {}
        if not session.quick(kind, data):
            return False
        try:
            reply = session.perform_now(kind, data, frame.request_id)
            kind = self._told(kind)
        except Exception as error:  # the outermost edge: every error has a reply
            kind, reply = "error", encode(refusal.data(self._refusal(error)))
        self._store.settle(partial(self._send_settled, send, _written(kind, reply, frame.id), frame.id))
        return True

    def _send_settled(self, send: Callable[[bytes], None], reply: bytes, id: Id, error: ServerError | None) -> None:
        """Send the reply that waited, or say why there is none."""
        if error is not None:
            reply = _written("error", encode(refusal.data(self._refusal(error))), id)
        send(reply)

    def _told(self, kind: str) -> str:
        """The type of the reply, counted."""
        self.metrics.count(kind)
        return "observation" if kind in OBSERVED else kind

    async def _reply(self, frame: Frame) -> tuple[str, bytes]:
        if self.sessions.stopping:
            raise ServerError("STOPPING", "the server is stopping")
        kind, data, session = frame.type, frame.data or {}, await self._live_session()
        if kind in BATCHED:
            return "batch", encode(await self._batched(kind, data))
        if session is None:
            if kind == "state":
                return "state", FRESH
            if kind not in PERFORMED:
                raise unknown_type(kind)
            if kind != "reset":
                raise _before_reset(kind)
            reply = await self._begin(data, frame.request_id)
        else:
            reply = await session.perform(kind, data, frame.request_id)
        return self._told(kind), reply

    async def _live_session(self) -> ServedSession | None:
        """The session of this socket, taken up again where it was lost, unless another caller closed it meanwhile."""
        session = self.session
        if session is None or session.session.lifecycle is not CLOSED:
            return session
        try:
            self._attach(await self.sessions.find(session.id, self.environment, self.owner))
        except ServerError as error:
            if error.code != "SESSION_ERROR":
                raise
            session.attached -= 1
            self.session = None
            raise ServerError("SESSION_ERROR", "the session was closed; reset opens another") from None
        return self.session

    async def _begin(self, data: dict[str, Any], request_id: str | None) -> bytes:
        """Open a session and reset it; a reset that is refused leaves nothing behind."""
        session = await self.sessions.open(self.environment, self.owner)
        try:
            reply = await session.perform("reset", data, request_id)
        except BaseException as error:
            await self.sessions.close(session)
            if isinstance(error, Exception):  # told here, where it is known which session it was
                raise refusal.refusal(error, **session.named) from None
            raise
        self._attach(session)
        return reply

    async def _batched(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        if kind == "open":
            return await self._open_batch(data)
        if self.batch is None:
            raise StateError("batch", None, "open first", f"cannot {kind}: send a frame of type open first")
        self.metrics.count(kind)
        return await (self.batch.reset(data) if kind == "reset_batch" else self.batch.step(data))

    async def _open_batch(self, data: dict[str, Any]) -> dict[str, Any]:
        """Open a batch, in place of the one before; it counts as one session while the socket is open."""
        if self.batch is None:
            self.sessions.take_place(self.owner)
        try:
            self.batch = await Batch.open(self.environment, data, self.sessions)
        except BaseException:
            if self.batch is None:
                self.sessions.free_place(self.owner)
            raise
        return self.batch.first()

    async def _answer_binary(self, raw: bytes) -> dict[str, Any]:
        """Batches may speak msgpack, so that arrays travel as they are."""
        tail: dict[str, Any] = {}
        try:
            said = unpack(raw)
            tail = _tail(said)
            frame = convert(said, Frame)
            if frame.type not in BATCHED:
                raise ServerError("UNKNOWN_TYPE", f"a binary frame of type {frame.type!r}; expected {BATCHED}")
            return {"bytes": pack({"type": "batch", "data": await self._batched(frame.type, frame.data or {}), **tail})}
        except Exception as error:  # the outermost edge: every error has a reply
            return {"text": encode(_error(self._refusal(error)) | tail).decode()}

    def _refusal(self, error: Exception) -> ServerError:
        named = {"environment": self.environment.id} if self.session is None else self.session.named
        reason = refusal.refusal(error, **named)
        self.metrics.count_error(reason.code)
        return reason

    async def _close(self) -> None:
        if self.session is not None:
            session, self.session = self.session, None
            await self.sessions.close(session)


async def _received(receive: Any, direct: DirectSocket | None) -> Any:
    """The next message; while it is waited for, others may be answered directly."""
    if direct is None:
        return await receive()
    direct.idle = True
    message = await receive()
    direct.idle = False
    return message


def _tail(said: Any) -> dict[str, Any]:
    """The id of a binary frame, to be sent back."""
    try:
        id = convert(said, FrameId).id
    except ServerError:
        return {}
    return {} if id is msgspec.UNSET else {"id": id}


def _written(kind: str, data: bytes, id: Id) -> bytes:
    tail = b"}" if id is msgspec.UNSET else b',"id":%b}' % encode(id)
    return b'{"type":"%b","data":%b%b' % (kind.encode(), data, tail)


def _before_reset(kind: str) -> Exception:
    return StateError("lifecycle", "created", "reset first", f"cannot {kind}: reset first")


def _error(reason: ServerError) -> dict[str, Any]:
    return {"type": "error", "data": refusal.data(reason)}
