"""Runs the application on a real socket: uvicorn with the limits that a public server needs."""

import asyncio
import gc
import json
import logging
import os
import socket
import sys
import threading
import time
from asyncio import TimerHandle
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tropism.core.registry import find, make, registered, unavailable_reasons
from tropism.errors import ServerError, ValidationError
from tropism.serve import errors as refusal
from tropism.serve.app import App
from tropism.serve.http.auth import SAFE, UNFRAMED
from tropism.serve.session.environment import THREADS, ServedEnvironment
from tropism.serve.settings import Settings
from tropism.serve.websocket.fast_path import DirectSocket
from tropism.wire.codec import encode

DRAINING = 10  # seconds that steps under way get when the server stops
CLOSING = 2  # seconds that connections get after that
LEAVING = 0.1  # seconds that an idle thread gets to end
LOGGED = ("session_id", "episode_id", "environment", "path", "error_id", "tool")


def served(ids: Iterable[str] = (), params: Any = None, **arguments: Any) -> dict[str, ServedEnvironment]:
    """The environments of these ids, or every registered one; one alone may be made with params and arguments."""
    chosen = [find(id) for id in ids] or list(registered())
    if (params or arguments) and len(chosen) != 1:
        raise ValidationError("ids", [spec.id for spec in chosen], "one id, for params and arguments to belong to")
    return {
        spec.id: ServedEnvironment(spec.id, *make(spec.id, params=params, **arguments), spec.summary) for spec in chosen
    }


def missing(ids: Iterable[str] = ()) -> dict[str, str]:
    """The environments that would be served, were they to be had on this machine, and why they are not."""
    return {} if list(ids) else unavailable_reasons()


def run(app: App, ready: Callable[[str], None]) -> None:
    """Serve until told to stop; `ready` hears the address when requests are answered."""
    with _listening(app.settings) as listening:
        try:
            Server(app, ready).run(sockets=[listening])
        finally:
            _leave_stuck_steps()


def _listening(settings: Settings) -> socket.socket:
    """A socket of our own, so that a port which is taken is a plain error."""
    listening = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        place = f"{settings.host}:{settings.port}"
        raise ValidationError("address", place, f"one that is free ({error.strerror}); --port 0 takes any") from None
    return listening


def _leave_stuck_steps() -> None:
    """Python waits for threads before it exits: not for a step that never ends."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    for thread in threads:
        thread.join(LEAVING)
    if any(thread.is_alive() for thread in threads):
        logging.getLogger("tropism.serve").warning("steps that did not end were left")
        os._exit(1)


class Server(uvicorn.Server):
    """uvicorn, which says where it listens and lets steps under way finish."""

    def __init__(self, app: App, ready: Callable[[str], None]):
        settings = app.settings
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                http=type("Protocol", (Impatient,), {"header_timeout": settings.header_timeout}),
                ws=DirectSocket,
                ws_max_size=settings.max_body,
                ws_per_message_deflate=False,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=CLOSING,
            )
        )
        self._application = app
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is loaded by now stays: there is no need to look through it again and again
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: Any = None) -> None:
        """Steps under way are answered before sockets close."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._application.drain(), DRAINING)
        await super().shutdown(sockets)


class Impatient(HttpToolsProtocol):
    """uvicorn's, with a limit on the time that a request's headers may take, and refusals in our form."""

    header_timeout = 10.0  # seconds
    _deadline: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._headers_came()
        super().on_headers_complete()

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """True, which leaves the connection open: a caller that has said all may still listen."""
        cycle: Any = self.cycle
        answering = cycle is not None and not cycle.more_body and not cycle.response_complete
        if answering:
            self.cycle.keep_alive = False
        return answering

    def send_400_response(self, msg: str) -> None:
        self._refuse(ServerError("BAD_REQUEST", msg))

    def _refuse(self, reason: ServerError) -> None:
        """Answer what never became a request."""
        body, status = encode(refusal.data(reason)), refusal.STATUS[reason.code]
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        safe = b"".join(b"%b: %b\r\n" % header for header in (*SAFE, UNFRAMED))
        self.transport.write(head.encode() + safe + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _too_slow(self) -> None:
        self._refuse(ServerError("TOO_SLOW", f"the headers were not complete in {self.header_timeout} s"))

    def _expect_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.header_timeout, self._too_slow)

    def _headers_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and which session it is about."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + "Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {name: value for name in LOGGED if (value := record.__dict__.get(name)) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn takes a socket that was refused with words for a mistake of ours."""
    return record.getMessage() != "ASGI callable returned without completing handshake."


def log_to_stderr(level: str = "info") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("tropism", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(_is_news)
