"""uvicorn's WebSocket protocol, with a fast path for small text frames, which are nearly all traffic."""

import logging
from asyncio import Future, get_running_loop
from collections.abc import Callable
from operator import attrgetter
from struct import Struct
from typing import Any

from uvicorn import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

# Attributes of uvicorn's protocol that `FastPathSocket` uses, and that are not part of uvicorn's documented interface.
USED_ATTRIBUTES = (
    "close_sent",
    "close_timer",
    "conn.reader.buffer",
    "frames",
    "handle_parser_exception",
    "loop",
    "queue",
    "transport",
    "writable",
)
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

    def set_responder(self, responder: Responder) -> None:
        """Activate the fast path, and free memory that only the handshake needed."""
        self.responder = responder
        self.__dict__.pop("request", None)
        self.__dict__.pop("response", None)

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
    return _unmask(data[start:], data[mask:start]) if len(data) == start + size else None


def _unmask(data: bytes, mask: bytes) -> bytes:
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")


def _header(size: int) -> bytes:
    if size < TWO_BYTES:
        return SMALL.pack(WHOLE_TEXT, size)
    if size < 2**16:
        return MEDIUM.pack(WHOLE_TEXT, TWO_BYTES, size)
    return LARGE.pack(WHOLE_TEXT, TWO_BYTES + 1, size)


def fast_path_socket(receive: Any) -> FastPathSocket | None:
    """The protocol that an ASGI `receive` belongs to, if it is a `FastPathSocket`."""
    protocol = getattr(receive, "__self__", None)
    return protocol if isinstance(protocol, FastPathSocket) else None


def websocket_protocol(config: Config) -> type[WebSocketsSansIOProtocol]:
    """`FastPathSocket`; uvicorn's own protocol, with a warning, if that lacks an attribute that the fast path uses."""
    protocol = WebSocketsSansIOProtocol(config, ServerState(), {})
    missing = [name for name in USED_ATTRIBUTES if not _has_attribute(protocol, name)]
    if not missing:
        return FastPathSocket
    message = (
        "this version of uvicorn has no %s, so sockets are slower; install the version that tropism[serve] requires"
    )
    logging.getLogger("tropism.serve").warning(message, ", ".join(missing))
    return WebSocketsSansIOProtocol


def _has_attribute(value: Any, path: str) -> bool:
    try:
        attrgetter(path)(value)
    except AttributeError:
        return False
    return True
