"""uvicorn's WebSocket protocol, with a fast path for small text frames, which are nearly all traffic."""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from struct import Struct
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # pyright: ignore[reportPrivateImportUsage]; in C if available

EXTENSION = "tropism.fast_path"  # the key of the protocol in the ASGI scope's extensions
LINGER = 5.0  # seconds
WHOLE_TEXT, MASKED, TWO_BYTES = 0x81, 0x80, 126
SMALL, MEDIUM, LARGE = Struct("!BB"), Struct("!BBH"), Struct("!BBQ")  # frame headers


Responder = Callable[[bytes, Callable[[bytes], None]], bool]


class MessageQueue:
    """The part of `asyncio.Queue` that a socket with one reader needs, in a tenth of the memory."""

    __slots__ = ("_messages", "_waiting")

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._waiting: Future[None] | None = None

    def put_nowait(self, message: Any) -> None:
        self._messages.append(message)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self) -> Any:
        while not self._messages:
            self._waiting = get_running_loop().create_future()
            await self._waiting
        return self._messages.pop(0)

    def empty(self) -> bool:
        return not self._messages


class FastPathSocket(WebSocketsSansIOProtocol):
    """Replies to unfragmented text frames in `data_received`, without ASGI.

    Queues, tasks and ASGI messages cost as much as a step itself. The application sets `responder`, which takes the
    payload of a request and a function that sends its reply. If it returns False, and for all other frames, uvicorn
    processes the frame as usual.
    To keep replies in order, the application sets `idle` while it waits for the next message; a message in the queue
    clears it.
    """

    responder: Responder | None = None
    idle = False

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.queue = MessageQueue()  # pyright: ignore[reportAttributeAccessIssue]

    async def run_asgi(self) -> None:
        self.scope["extensions"] = {**(self.scope.get("extensions") or {}), EXTENSION: self}  # pyright: ignore
        await super().run_asgi()

    def set_responder(self, responder: Responder) -> None:
        """Activate the fast path, and free memory that only the handshake needed."""
        self.responder = responder
        del self.request, self.response
        self.scope["headers"] = []

    def data_received(self, data: bytes) -> None:
        if self.idle and self._try_respond(data):
            return
        super().data_received(data)
        if not self.queue.empty() or self.frames or self.conn.reader.buffer:
            self.idle = False  # until the application has processed that and waits again

    def _try_respond(self, data: bytes) -> bool:
        if (
            self.responder is None
            or self.close_sent
            or not self.writable.is_set()
            or len(data) > self.config.ws_max_size
        ):
            return False
        payload = _payload(data)
        return payload is not None and self.responder(payload, self._send)

    def _send(self, reply: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_header(len(reply)) + reply)

    def handle_parser_exception(self) -> None:
        """Send the close frame (for example, for too large a frame), but keep reading for a while.

        Closing with unread data would reset the connection, and the client might not receive the close frame.
        """
        if self.close_sent:
            return
        close = self.conn.close_sent
        code, reason = (1006, "") if close is None else (close.code, close.reason)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        self.close_sent = True
        self.close_timer = self.loop.call_later(LINGER, self.transport.close)


def _payload(data: bytes) -> bytes | None:
    """The payload of a small, unfragmented, masked text frame; None for anything else."""
    if len(data) < 6 or data[0] != WHOLE_TEXT or not data[1] & MASKED:
        return None
    size, mask = data[1] & ~MASKED, 2
    if size > TWO_BYTES:
        return None
    if size == TWO_BYTES:
        size, mask = int.from_bytes(data[2:4], "big"), 4
    start = mask + 4
    return apply_mask(data[start:], data[mask:start]) if len(data) == start + size else None


def _header(size: int) -> bytes:
    if size < TWO_BYTES:
        return SMALL.pack(WHOLE_TEXT, size)
    if size < 2**16:
        return MEDIUM.pack(WHOLE_TEXT, TWO_BYTES, size)
    return LARGE.pack(WHOLE_TEXT, TWO_BYTES + 1, size)


def fast_path_socket(scope: Any) -> FastPathSocket | None:
    """The protocol of this connection, if it is a `FastPathSocket`."""
    return scope["extensions"].get(EXTENSION)
