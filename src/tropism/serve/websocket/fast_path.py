"""uvicorn's WebSocket protocol, with a short way for the frames that make up nearly all traffic."""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from struct import Struct
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # pyright: ignore[reportPrivateImportUsage]; fast where it can be

EXTENSION = "tropism.direct"  # under this name an application finds the protocol in its scope
LINGERING = 5.0  # seconds
WHOLE_TEXT, MASKED, TWO_BYTES = 0x81, 0x80, 126
SMALL, MIDDLING, LARGE = Struct("!BB"), Struct("!BBH"), Struct("!BBQ")  # how a frame begins


Answer = Callable[[bytes, Callable[[bytes], None]], bool]


class Mailbox:
    """As much of an `asyncio.Queue` as a socket with one reader needs, in a tenth of the memory."""

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


class DirectSocket(WebSocketsSansIOProtocol):
    """A whole text frame that can be answered at once is answered where it arrives.

    Queues, tasks and ASGI messages cost as much as a step itself. `answer` takes the payload of a request, and what
    is to be called with that of its reply; it says no where it cannot: then, and for any other frame, uvicorn goes
    its own way.
    The application sets it, and sets `idle` while it waits for the next message, so that replies keep their order;
    what has come and is not done makes it busy again.
    """

    answer: Answer | None = None
    idle = False

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.queue = Mailbox()  # pyright: ignore[reportAttributeAccessIssue]

    async def run_asgi(self) -> None:
        self.scope["extensions"] = {**(self.scope.get("extensions") or {}), EXTENSION: self}  # pyright: ignore
        await super().run_asgi()

    def answer_with(self, answer: Answer) -> None:
        """Answer from now on; what only the handshake needed is let go."""
        self.answer = answer
        del self.request, self.response
        self.scope["headers"] = []

    def data_received(self, data: bytes) -> None:
        if self.idle and self._answered(data):
            return
        super().data_received(data)
        if not self.queue.empty() or self.frames or self.conn.reader.buffer:
            self.idle = False  # until that is done, and the application waits again

    def _answered(self, data: bytes) -> bool:
        if self.answer is None or self.close_sent or not self.writable.is_set() or len(data) > self.config.ws_max_size:
            return False
        payload = _payload(data)
        return payload is not None and self.answer(payload, self._send)

    def _send(self, reply: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_header(len(reply)) + reply)

    def handle_parser_exception(self) -> None:
        """Say why (too large a frame, say) and hang up, but read on for a while: data that nobody reads resets the
        connection, and what was said would be lost on its way."""
        if self.close_sent:
            return
        said = self.conn.close_sent
        code, reason = (1006, "") if said is None else (said.code, said.reason)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        self.close_sent = True
        self.close_timer = self.loop.call_later(LINGERING, self.transport.close)


def _payload(data: bytes) -> bytes | None:
    """What a small, whole, masked text frame says; None for anything else."""
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
        return MIDDLING.pack(WHOLE_TEXT, TWO_BYTES, size)
    return LARGE.pack(WHOLE_TEXT, TWO_BYTES + 1, size)


def direct_socket(scope: Any) -> DirectSocket | None:
    """The protocol below this connection, where it is ours."""
    return scope["extensions"].get(EXTENSION)
