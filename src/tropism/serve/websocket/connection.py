"""The WebSocket API: one reply for each frame, in order."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import msgspec

from tropism.core.session.session import EnvironmentState
from tropism.errors import ServerError, StateError
from tropism.serve import errors
from tropism.serve.http.messages import SESSION_HEADER
from tropism.serve.metrics import Metrics
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import public_info
from tropism.serve.session.live import OPERATIONS, LiveSession, unknown_type
from tropism.serve.session.registry import ADMIN_KINDS, SessionRegistry
from tropism.serve.session.requests import ANYWHERE, FEW_VALUES, EpisodePosition, convert
from tropism.serve.tools import openenv
from tropism.serve.websocket.batch import Batch
from tropism.serve.websocket.fast_path import FastPathSocket, fast_path_socket
from tropism.wire.codec import Frame, FrameId, Id, decode_frame, encode, frame_id, pack, unpack

BATCH_KINDS = ("open", "reset_batch", "step_batch")
OBSERVATION_KINDS = ("reset", "step", "restore")  # their reply is an observation
CLOSED = EnvironmentState.CLOSED
EMPTY_STATE = encode({"episode_id": None, "step_count": 0})


class Connection:
    """One socket, with its session and its batch, if any."""

    def __init__(self, sessions: SessionRegistry, environment: ServedEnvironment, owner: str, metrics: Metrics):
        self.sessions = sessions
        self.environment = environment
        self.owner = owner
        self.metrics = metrics
        self.session: LiveSession | None = None
        self.batch: Batch | None = None
        self._decoded: Frame | ServerError | None = None  # the next frame, if the fast path decoded and declined it
        self._journal = sessions.journal
        self._forbidden = () if sessions.settings.is_admin(owner) else ADMIN_KINDS

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve frames until the socket closes; the session stays open unless the caller closed it."""
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        try:
            if await self._resume(scope, send):
                scope["headers"], scope["header_map"] = [], {}  # free their memory
                await self._run_loop(receive, send, fast_path_socket(receive))
        finally:
            if self.session is not None:
                self.session.sockets -= 1
            if self.batch is not None:
                self.sessions.release_slot(self.owner)

    async def _resume(self, scope: Any, send: Any) -> bool:
        """Attach to the session named in the query or a header; if that fails, send the error and close the socket."""
        id = scope["query"].get("session_id") or scope["header_map"].get(SESSION_HEADER)
        if id is None:
            return True
        try:
            self._attach(await self.sessions.find(id, self.environment, self.owner))
        except Exception as error:  # the outermost level: every error gets a reply
            reason = errors.to_server_error(error, environment=self.environment.id)
            await send({"type": "websocket.send", "text": _error_frame(reason).decode()})
            await send({"type": "websocket.close", "code": 1008, "reason": reason.code})
            return False
        return True

    def _attach(self, session: LiveSession) -> None:
        if self.session is not None:
            self.session.sockets -= 1
        self.session = session
        session.sockets += 1

    async def _run_loop(self, receive: Any, send: Any, fast_path: FastPathSocket | None) -> None:
        if fast_path is not None:
            fast_path.set_responder(self._respond_inline)
        while True:
            message = await _receive(receive, fast_path)
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                reply = await self._respond_binary(message["bytes"])
            elif (reply_text := await self._respond(text)) is not None:
                reply = {"text": reply_text}
            else:
                await send({"type": "websocket.close", "code": 1000})
                return
            await self._wait_for_earlier_replies()
            await send({"type": "websocket.send", **reply})

    async def _wait_for_earlier_replies(self) -> None:
        """Wait for replies of the fast path that are not durable yet, to keep the order."""
        if self.session is not None:
            with suppress(ServerError):  # reported in those replies
                await self._journal.durable(self.session.log.ticket)

    async def _respond(self, text: str) -> str | None:
        """The reply to a text frame; None to close the socket."""
        decoded, self._decoded, frame = self._decoded, None, None
        try:
            if isinstance(decoded, ServerError):
                raise decoded
            frame = decoded or decode_frame(text)
            if frame.type == "close":
                await self._close()
                return None
            return _frame_bytes(*await self._reply(frame), frame.id).decode()
        except Exception as error:  # the outermost level: every error gets a reply
            reason = self._to_server_error(error)
            return _error_frame(reason, _invalid_frame_id(text, reason) if frame is None else frame.id).decode()

    def _respond_inline(self, text: bytes, send: Callable[[bytes], None]) -> bool:
        """Reply to a request that may run on the event loop; returns False for all others and for malformed ones."""
        session = self.session
        if session is None or self.sessions.stopping or session.session.lifecycle is CLOSED:
            return False
        try:
            frame = decode_frame(text)
        except ServerError as error:
            self._decoded = error
            return False
        kind, data = frame.type, frame.data or {}
        if kind in self._forbidden or not session.can_run_inline(kind, data, len(text) <= FEW_VALUES):
            self._decoded = frame
            return False
        try:
            reply = session.perform_inline(kind, data, frame.request_id, _position(frame))
            kind = self._reply_type(kind)
        except Exception as error:  # the outermost level: every error gets a reply
            kind, reply = "error", encode(errors.error_json(self._to_server_error(error)))
        respond = partial(self._send_durable, session, send, _frame_bytes(kind, reply, frame.id), frame.id)
        self._journal.when_durable(session.log.ticket, respond)
        return True

    def _send_durable(
        self, session: LiveSession, send: Callable[[bytes], None], reply: bytes, id: Id, error: ServerError | None
    ) -> None:
        """Send a reply whose entries are durable, or the error if they cannot be."""
        if error is not None:
            self.sessions.evict_lost(session)
            reply = _error_frame(self._to_server_error(error), id)
        send(reply)
        if session.log.records_from_entries:
            session.record_if_ended()

    def _reply_type(self, kind: str) -> str:
        """Count the request; returns the type of its reply."""
        self.metrics.requests[kind] += 1
        return "observation" if kind in OBSERVATION_KINDS else kind

    async def _reply(self, frame: Frame) -> tuple[str, bytes]:
        if self.sessions.stopping:
            raise ServerError("STOPPING", "the server is stopping")
        kind, data, session = frame.type, frame.data or {}, await self._live_session()
        self.sessions.check_rights(kind, self.owner)
        if kind == "mcp":
            return kind, encode(await self._rpc_reply(data))
        if kind in BATCH_KINDS:
            return "batch", encode(await self._batch_reply(kind, data))
        if session is None:
            if kind == "state":
                return "state", EMPTY_STATE
            if kind not in OPERATIONS:
                raise unknown_type(kind)
            if kind != "reset":
                raise _not_reset_error(kind)
            reply = await self._begin(data, frame.request_id)
        else:
            reply = await session.perform(kind, data, frame.request_id, _position(frame))
        return self._reply_type(kind), reply

    async def _rpc_reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """The reply to OpenEnv's JSON-RPC in a frame; opens a session if the socket has none."""
        if self.session is None:
            self._attach(await self.sessions.open(self.environment, self.owner))
        assert self.session is not None
        self.metrics.requests["mcp"] += 1
        return await openenv.respond_in_session(message, self.session, self.sessions)

    async def _live_session(self) -> LiveSession | None:
        """The session of this socket, reloaded if it was lost; raises if another caller has closed it."""
        session = self.session
        if session is None or session.session.lifecycle is not CLOSED:
            return session
        try:
            self._attach(await self.sessions.find(session.id, self.environment, self.owner))
        except ServerError as error:
            if error.code != "SESSION_ERROR":
                raise
            session.sockets -= 1
            self.session = None
            raise ServerError("SESSION_ERROR", "the session was closed; reset opens another") from None
        return self.session

    async def _begin(self, data: dict[str, Any], request_id: str | None) -> bytes:
        """Open a session and reset it; if the reset fails, close it."""
        session = await self.sessions.open(self.environment, self.owner)
        try:
            reply = await session.perform("reset", data, request_id)
        except BaseException as error:
            await self.sessions.close(session)
            if isinstance(error, Exception):  # converted here, where the session is known for the log
                raise errors.to_server_error(error, **session.log_context) from None
            raise
        self._attach(session)
        return reply

    async def _batch_reply(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        if kind == "open":
            return self._public(await self._open_batch(data))
        if self.batch is None:
            raise StateError("batch", None, "open first", f"cannot {kind}: send a frame of type open first")
        self.metrics.requests[kind] += 1
        return self._public(await (self.batch.reset(data) if kind == "reset_batch" else self.batch.step(data)))

    def _public(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request for a batch without private info, unless the caller may see that."""
        hidden = self.environment.env.private_info
        if not hidden or self.sessions.settings.shows_private_info(self.owner):
            return reply
        return reply | {name: public_info(reply[name], hidden) for name in ("info", "final_info") if name in reply}

    async def _open_batch(self, data: dict[str, Any]) -> dict[str, Any]:
        """Open a batch in place of the previous one; it counts as one session while the socket is open."""
        with self.sessions.slot(self.owner) if self.batch is None else nullcontext():
            self.batch = await Batch.open(self.environment, data, self.sessions)
        return self.batch.reset_reply()

    async def _respond_binary(self, raw: bytes) -> dict[str, Any]:
        """Batches accept msgpack, in which arrays are binary."""
        id: Id = msgspec.UNSET
        try:
            message = unpack(raw)
            id = _packed_frame_id(message)
            frame = convert(message, Frame)
            if frame.type not in BATCH_KINDS:
                raise ServerError("UNKNOWN_TYPE", f"a binary frame of type {frame.type!r}; expected {BATCH_KINDS}")
            reply = await self._batch_reply(frame.type, frame.data or {})
            id_field = {} if id is msgspec.UNSET else {"id": id}
            return {"bytes": pack({"type": "batch", "data": reply, **id_field})}
        except Exception as error:  # the outermost level: every error gets a reply
            return {"text": _error_frame(self._to_server_error(error), id).decode()}

    def _to_server_error(self, error: Exception) -> ServerError:
        log_context = {"environment": self.environment.id} if self.session is None else self.session.log_context
        reason = errors.to_server_error(error, **log_context)
        self.metrics.errors[reason.code] += 1
        return reason

    async def _close(self) -> None:
        if self.session is not None:
            session, self.session = self.session, None
            await self.sessions.close(session)


def _invalid_frame_id(text: str, reason: ServerError) -> Id:
    """The id of a frame that has the wrong form; what is not JSON has none."""
    return msgspec.UNSET if reason.code == "INVALID_JSON" else frame_id(text)


def _position(frame: Frame) -> EpisodePosition:
    anywhere = frame.after is None and frame.episode_id is None
    return ANYWHERE if anywhere else EpisodePosition(frame.after, frame.episode_id)


async def _receive(receive: Any, fast_path: FastPathSocket | None) -> Any:
    """The next message; the fast path is active while waiting for it."""
    if fast_path is None:
        return await receive()
    fast_path.idle = True
    message = await receive()
    fast_path.idle = False
    return message


def _packed_frame_id(message: Any) -> Id:
    """The id of a binary frame, which may be otherwise invalid."""
    try:
        return convert(message, FrameId).id
    except ServerError:
        return msgspec.UNSET


def _frame_bytes(kind: str, data: bytes, id: Id) -> bytes:
    end = b"}" if id is msgspec.UNSET else b',"id":%b}' % encode(id)
    return b'{"type":"%b","data":%b%b' % (kind.encode(), data, end)


def _not_reset_error(kind: str) -> Exception:
    return StateError("lifecycle", "created", "reset first", f"cannot {kind}: reset first")


def _error_frame(reason: ServerError, id: Id = msgspec.UNSET) -> bytes:
    return _frame_bytes("error", encode(errors.error_json(reason)), id)
