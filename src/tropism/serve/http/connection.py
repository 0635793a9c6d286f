"""An HTTP connection, with the limits that a public server needs."""

import logging
import resource
import sys
import time
from asyncio import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tropism.errors import ServerError
from tropism.serve.http.messages import error_response

log = logging.getLogger("tropism.serve")

MAX_HEAD = 2**16  # bytes of a request line and headers
SPARE_FILES = 8  # below the limit of open files
REPORT_INTERVAL = 60.0  # seconds
LINGER = 5.0  # seconds that a caller has to finish a request that was answered before its end


class SocketCount:
    """Counts open sockets, and connections whose request was answered before its end."""

    def __init__(self, limit: int):
        self.limit = limit
        self.used = 0
        self._next_report = 0.0

    def acquire(self) -> bool:
        """Count one more, unless all are in use."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    def release(self) -> None:
        self.used -= 1

    def report_exhaustion(self) -> None:
        """Log, at most once a minute, that the system's limit of open files is reached."""
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + REPORT_INTERVAL
            log.error("no more connections can be accepted: the limit of open files is reached (ulimit -n)")


def http_protocol(header_timeout: float, sockets: SocketCount) -> type[HttpToolsProtocol]:
    """The protocol with these limits."""
    max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limits = {"header_timeout": header_timeout, "sockets": sockets}
    limits["last_file"] = sys.maxsize if max_files == resource.RLIM_INFINITY else max_files - SPARE_FILES
    return type("Protocol", (LimitedHttpProtocol,), limits)


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on headers and on unread bodies, and with errors in our JSON form."""

    header_timeout = 10.0  # seconds
    sockets = SocketCount(1)
    last_file = sys.maxsize  # a connection with this descriptor is one of the last that can be accepted
    _deadline: TimerHandle | None = None
    _lingering: TimerHandle | None = None
    _head_size = 0  # bytes of the request line and the headers

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if transport.get_extra_info("socket").fileno() >= self.last_file:
            self.sockets.report_exhaustion()
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._end_lingering()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        reads_head = self._deadline is not None
        super().data_received(data)
        if reads_head and self._deadline is not None and not self.transport.is_closing():
            self._count_head(len(data))

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_head(len(name) + len(value) + 4)

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEAD and not self.transport.is_closing():
            self._send_error(ServerError("HEADERS_TOO_LARGE", f"request line and headers exceed {MAX_HEAD} bytes"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = 0
        self._start_deadline()

    def on_headers_complete(self) -> None:
        self._cancel_deadline()
        if not self.transport.is_closing():
            super().on_headers_complete()

    @property
    def _has_cycle(self) -> bool:
        """Whether the request is being answered; not after an error in its headers."""
        return getattr(self, "cycle", None) is not None

    def on_body(self, body: bytes) -> None:
        if self._has_cycle:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._end_lingering()
        if self._has_cycle:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """A reply may come before the end of the request: read the rest for a while, so that the caller gets it."""
        unread = self.cycle.more_body
        super().on_response_complete()
        if not unread or self.transport.is_closing():
            return
        if self.sockets.acquire():
            self._lingering = self.loop.call_later(LINGER, self.transport.close)
        else:
            self.transport.close()

    def _end_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
            self.sockets.release()

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """True leaves the connection open while a reply is pending: the caller may still be reading."""
        cycle: Any = self.cycle
        answering = cycle is not None and not cycle.more_body and not cycle.response_complete
        if answering:
            self.cycle.keep_alive = False
        return answering

    def send_400_response(self, msg: str) -> None:
        self._send_error(ServerError("BAD_REQUEST", msg))

    def _send_error(self, error: ServerError) -> None:
        """Reply to data that is not a valid request, and close the connection."""
        response = error_response(error)
        headers = {**dict(response.all_headers()), b"connection": b"close"}
        head = b"".join(b"%b: %b\r\n" % header for header in headers.items())
        self.transport.write(b"HTTP/1.1 %d \r\n%b\r\n%b" % (response.status, head, response.body))
        self.transport.close()

    def _too_slow(self) -> None:
        self._send_error(ServerError("TOO_SLOW", f"the headers were not complete in {self.header_timeout} s"))

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.header_timeout, self._too_slow)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
