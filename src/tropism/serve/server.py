"""Runs the application with uvicorn, and with the limits that a public server needs."""

import asyncio
import gc
import json
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import uvicorn

from tropism.core.native.choice import EngineName
from tropism.core.registry import find, make, registered, unavailable_reasons
from tropism.errors import ValidationError
from tropism.serve.app import App
from tropism.serve.http.connection import http_protocol
from tropism.serve.session.environment import THREAD_NAME_PREFIX, ServedEnvironment
from tropism.serve.settings import Settings
from tropism.serve.websocket.fast_path import websocket_protocol

DRAIN_TIMEOUT = 10  # seconds that running steps have to finish when the server stops
CLOSE_TIMEOUT = 2  # seconds that connections have to close after that
OTHER_FILES = 64  # journal, recordings, pipes
JOIN_TIMEOUT = 0.1  # seconds that an idle thread has to end
GC_THRESHOLDS = (10_000, 5, 50)  # entries of sessions are numerous and rarely garbage: search them less often
LOG_FIELDS = ("session", "episode_id", "environment", "path", "error_id", "tool")


def load_environments(
    ids: Iterable[str] = (), params: Any = None, engine: EngineName = "auto", **arguments: Any
) -> dict[str, ServedEnvironment]:
    """The environments with these ids, or all registered ones; of several, the names in `params` and `arguments` are
    preceded by the id of their environment and a colon."""
    chosen = {spec.id: spec for spec in [find(id) for id in ids] or registered()}
    params_of, arguments_of = (_by_environment(list(chosen), values or {}) for values in (params, arguments))
    return {
        id: ServedEnvironment(id, *make(id, params=params_of[id], **arguments_of[id]), spec.summary, engine)
        for id, spec in chosen.items()
    }


def _by_environment(ids: list[str], values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Values by environment and name; a name without an environment is for the only one."""
    found: dict[str, dict[str, Any]] = {id: {} for id in ids}
    for text, value in values.items():
        id, colon, name = text.partition(":")
        if not colon and len(ids) == 1:
            id, name = ids[0], text
        if id not in found or not name:
            raise ValidationError(text, value, f"ID:NAME=VALUE, where ID is one of {', '.join(ids)}")
        found[id][name] = value
    return found


def unavailable_environments(ids: Iterable[str] = ()) -> dict[str, str]:
    """Registered environments that are not available on this machine, with the reasons; none if `ids` are given."""
    return {} if list(ids) else unavailable_reasons()


def run(app: App, ready: Callable[[str], None]) -> None:
    """Serve until a signal stops the server; `ready` is called with the URL when it accepts requests."""
    _raise_file_limit(app.settings)
    with _listen(app.settings) as listening:
        try:
            Server(app, ready).run(sockets=[listening])
        finally:
            _abandon_stuck_steps()


def _raise_file_limit(settings: Settings) -> None:
    """Allow as many open files as the system does: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < settings.max_sockets + OTHER_FILES:
        message = "at most %d files can be open, too few for --max-sockets %d; raise the limit with ulimit -n"
        logging.getLogger("tropism.serve").info(message, hard, settings.max_sockets)


def _listen(settings: Settings) -> socket.socket:
    """Bind the socket here, so that a port in use raises a `ValidationError`."""
    listening = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        address = f"{settings.host}:{settings.port}"
        raise ValidationError("address", address, f"one that is free ({error.strerror}); --port 0 takes any") from None
    return listening


def _abandon_stuck_steps() -> None:
    """Exit without waiting for steps that never end, as Python otherwise would."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME_PREFIX)]
    for thread in threads:
        thread.join(JOIN_TIMEOUT)
    if any(thread.is_alive() for thread in threads):
        logging.getLogger("tropism.serve").warning("exiting while steps are still running")
        os._exit(1)


class Server(uvicorn.Server):
    """uvicorn's server, which reports its URL and lets running steps finish."""

    def __init__(self, app: App, ready: Callable[[str], None]):
        settings = app.settings
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                http=http_protocol(settings.header_timeout, app.sockets),
                ws="none",  # `startup` chooses the protocol
                ws_max_size=settings.max_body,
                ws_per_message_deflate=False,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=CLOSE_TIMEOUT,
            )
        )
        self._sessions = app.sessions
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        self.config.ws_protocol_class = websocket_protocol(self.config)
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # objects loaded by now are permanent: exclude them from garbage collection
        gc.set_threshold(*GC_THRESHOLDS)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: Any = None) -> None:
        """Reply to running steps before sockets close."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._sessions.drain(), DRAIN_TIMEOUT)
        await super().shutdown(sockets)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, message, and the session's ids."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + "Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {name: value for name in LOG_FIELDS if (value := record.__dict__.get(name)) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _is_relevant(record: logging.LogRecord) -> bool:
    """False for uvicorn's false alarm about sockets rejected with an HTTP response."""
    return record.getMessage() != "ASGI callable returned without completing handshake."


def log_to_stderr(level: str = "info") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("tropism", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(_is_relevant)
