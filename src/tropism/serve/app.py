"""The server's ASGI application: routes each path to its handler."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tropism import __version__
from tropism.errors import ServerError
from tropism.serve.errors import STATUS
from tropism.serve.http import openapi, static
from tropism.serve.http.api import NO_CONTENT, HttpApi, Response, error_response, send_response
from tropism.serve.http.auth import NO_FRAMES, SAFE_HEADERS, AuthMiddleware, send_error
from tropism.serve.inspect.inspector import Inspector
from tropism.serve.inspect.thumbnail import PNG
from tropism.serve.metrics import TYPE, Metrics
from tropism.serve.recordings.protocol import Recordings
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.settings import Settings
from tropism.serve.storage.protocol import Store
from tropism.serve.tools import openenv as jsonrpc
from tropism.serve.tools.tools import Tools
from tropism.serve.websocket.connection import Connection
from tropism.wire.codec import decode, encode

POSTS = ("reset", "step", "snapshot", "fork", "restore", "close")
SESSION_GETS = ("state", "history")
GETS = (
    *SESSION_GETS,
    "health",
    "metadata",
    "schema",
    "openapi.json",
    "docs",
    "metrics",
    "sessions",
    "list_environments",
    "picture",
    "recordings",
)
INSPECTED_FOLDERS = ("sessions", "recordings")
INSPECTIONS = ("history", "picture", "fork")  # under sessions/{watch_id}/… and recordings/{number}/…


class App:
    """Serves each environment under /envs/{id}, and the first one at / too.

    `absent` maps the environments that are not available to the reason.
    """

    def __init__(
        self,
        environments: Mapping[str, ServedEnvironment],
        settings: Settings | None = None,
        store: Store | None = None,
        absent: Mapping[str, str] | None = None,
        recordings: Recordings | None = None,
    ):
        self.absent = dict(absent or {})
        self.settings = settings or Settings()
        processes = self.settings.processes
        self.environments = {id: each.isolate() if processes else each for id, each in environments.items()}
        self.default = next(iter(self.environments.values()))
        self.sessions = SessionRegistry(self.environments, self.settings, store, recordings)
        self.inspector = Inspector(self.sessions)
        self.tools = Tools(self.sessions, self.environments)
        self.metrics = Metrics(self.sessions)
        self.api = HttpApi(self.sessions, self.metrics, self.settings)
        self._middleware = AuthMiddleware(self._route, self.settings)
        self._mcp = _mcp_endpoint(self.tools)
        self._sockets = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._middleware(scope, receive, send)

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        root, environment, name = self._resolve(scope["path"])
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send, environment, name)
            return
        if name == "mcp" and environment is not None:
            await self._serve_mcp(scope, receive, send, environment)
            return
        try:
            response = await self._respond(scope, receive, root, environment, name)
        except asyncio.CancelledError:  # the grace period of the shutdown is over
            error = ServerError("STOPPING", "the server stopped before this request finished")
            response = error_response(error, self.metrics)
        except Exception as error:  # the outermost level: every error gets a reply
            response = error_response(error, self.metrics, scope)
            if response.status == STATUS["METHOD_NOT_ALLOWED"]:
                response.headers = [(b"allow", _method(name).encode())]
        await send_response(send, response, root)

    def _resolve(self, path: str) -> tuple[str, ServedEnvironment | None, str]:
        """`(root, environment, name)` of a path: /envs/Echo-v0/step, or /step for the default environment."""
        if not path.startswith("/envs/"):
            return "", self.default, path[1:]
        id, _, name = path.removeprefix("/envs/").partition("/")
        return f"/envs/{id}", self.environments.get(id), name

    async def _respond(
        self, scope: Any, receive: Any, root: str, environment: ServedEnvironment | None, name: str
    ) -> Response:
        if environment is None:
            known = ", ".join(self.environments)
            raise ServerError("NOT_FOUND", f"no environment at {root!r}; this server has: {known}")
        inspected, last = _split_inspect_path(name)
        if last not in POSTS and last not in GETS and not _is_page(root, name):
            raise ServerError("NOT_FOUND", f"no page {scope['path']!r}; GET {root}/docs lists them")
        if scope["method"] != _method(name):
            raise ServerError("METHOD_NOT_ALLOWED", f"{scope['method']} {scope['path']}; expected {_method(name)}")
        if _is_page(root, name):
            return static.file_response(name.removeprefix("page/") if name else static.INDEX)
        if inspected is not None:
            return await self._inspect(*inspected, last, scope, receive, environment)
        if name == "recordings":
            return Response(await self.inspector.recordings(environment, await self.api.data(scope, receive)))
        if name == "picture":
            thumbnail = await self.inspector.thumbnail(environment)
            return Response(thumbnail.body, media_type=thumbnail.media_type)
        if name in POSTS or name in SESSION_GETS:
            self._check_open()
            return await self.api.perform(name, scope, receive, environment)
        if name in ("schema", "openapi.json"):
            await environment.prepare_form(self.sessions.threads)
        return self._document(name, root, environment, scope["owner"])

    async def _inspect(
        self, folder: str, key: str, kind: str, scope: Any, receive: Any, environment: ServedEnvironment
    ) -> Response:
        """A request about a session, by its watch id, or about a recording, by its number."""
        data, owner, inspector = await self.api.data(scope, receive), scope["owner"], self.inspector
        if kind == "fork":
            self._check_open()
        if folder == "sessions":
            follower = inspector.follow_session(key, owner)
        else:
            follower = await inspector.follow_recording(environment, key)
        if kind == "history":
            return Response(await inspector.history(follower, data))
        if kind == "fork":
            return Response(await inspector.fork(follower, owner, data))
        picture = await inspector.picture(follower, data)
        return Response(b"", NO_CONTENT) if picture is None else Response(picture, media_type=PNG)

    def _absent(self) -> dict[str, str]:
        """The environments that are unavailable, with the reason, among them served ones that fail now."""
        served = {each.id: each.env.unavailable_reason() for each in self.environments.values()}
        return self.absent | {id: reason for id, reason in served.items() if reason is not None}

    def _document(self, name: str, root: str, environment: ServedEnvironment, owner: str) -> Response:
        """Documents that need no session."""
        match name:
            case "health":
                return _json({"status": "healthy", "version": __version__, "absent": self._absent()})
            case "metadata":
                return _json(self._metadata(environment))
            case "schema":
                return _json(environment.form.annotated_schema())
            case "openapi.json":
                return _json(openapi.document(environment, root))
            case "docs":
                return static.file_response(static.INDEX)
            case "metrics":
                return Response(self.metrics.text().encode(), media_type=TYPE)
            case "sessions":
                return _json(self.sessions.rows(owner))
            case _:
                return _json([self._metadata(each) for each in self.environments.values()])

    def _metadata(self, environment: ServedEnvironment) -> dict[str, Any]:
        return {
            "name": environment.id,
            "description": environment.summary,
            "version": __version__,
            "url": f"/envs/{environment.id}",
            "pure": environment.env.pure,
            "blocking": bool(environment.env.traits.blocking),
            "replayable": environment.replayable,
            "recordings": self.sessions.recordings.count(environment.id),
        }

    async def _serve_socket(self, scope: Any, receive: Any, send: Any, environment: Any, name: str) -> None:
        max_sockets = self.settings.max_sockets
        if environment is None or name != "ws":
            expected = f"expected /envs/ID/ws with one of {', '.join(self.environments)}"
            await send_error(scope, send, ServerError("NOT_FOUND", f"no socket at {scope['path']!r}; {expected}"))
            return
        if self._sockets >= max_sockets:
            message = f"all {max_sockets} sockets of this server are open; try again later"
            await send_error(scope, send, ServerError("CAPACITY_REACHED", message))
            return
        self._sockets += 1
        connection = Connection(self.sessions, environment, scope["owner"], self.metrics)
        try:
            with suppress(asyncio.CancelledError):  # the server has stopped and closed the socket
                await connection.serve(scope, receive, send)
        finally:
            self._sockets -= 1

    async def _serve_mcp(self, scope: Any, receive: Any, send: Any, environment: ServedEnvironment) -> None:
        """Reply to OpenEnv's JSON-RPC; pass all other requests to the MCP SDK."""
        if scope["method"] != "POST":
            await self._serve_sdk(scope, receive, send)
            return
        try:
            body = await self.api.body(scope, receive)
            request = decode(body)
        except ServerError as reason:
            response = _json(jsonrpc.error(None, jsonrpc.PARSE_ERROR, reason.message))
            if reason.code in ("TOO_LARGE", "TOO_SLOW"):
                response = error_response(reason, self.metrics)
            await send_response(send, response, "")
            return
        if not jsonrpc.is_openenv_request(request):
            await self._serve_sdk(scope, _replay_body(body, receive), send)
            return
        reply = await jsonrpc.respond(request, environment, scope["owner"], self.sessions, self.tools)
        await send_response(send, _json(reply), "")

    async def _serve_sdk(self, scope: Any, receive: Any, send: Any) -> None:
        if self._mcp is not None:
            await self._mcp.handle(scope, receive, _with_safe_headers(send))
            return
        message = "MCP needs an optional dependency on the server: pip install 'tropism[mcp]'"
        await send_response(send, _json(jsonrpc.error(None, jsonrpc.NO_METHOD, message)), "")

    def _check_open(self) -> None:
        if self.sessions.stopping:
            raise ServerError("STOPPING", "the server is stopping")

    async def _lifespan(self, receive: Any, send: Any) -> None:
        """ASGI's start-up and shutdown events."""
        await receive()
        evicting = asyncio.create_task(self.sessions.evict_idle())
        async with self._mcp.run() if self._mcp is not None else nullcontext():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        evicting.cancel()
        await self.inspector.stop()
        self.sessions.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def drain(self) -> None:
        """Accept no more requests, and wait for running ones."""
        await self.sessions.drain()


def _method(name: str) -> str:
    return "POST" if _split_inspect_path(name)[1] in POSTS else "GET"


def _split_inspect_path(name: str) -> tuple[tuple[str, str] | None, str]:
    """`((folder, key), inspection)` of paths such as sessions/{watch_id}/history; `(None, name)` of all others."""
    folder, _, rest = name.partition("/")
    key, _, last = rest.partition("/")
    return ((folder, key), last) if folder in INSPECTED_FOLDERS and last in INSPECTIONS else (None, name)


def _is_page(root: str, name: str) -> bool:
    return not root and (not name or name.startswith("page/"))


def _mcp_endpoint(tools: Tools) -> Any:
    """None if the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        return None
    return import_module("tropism.serve.tools.mcp").McpEndpoint(tools)


def _replay_body(body: bytes, receive: Any) -> Callable[[], Any]:
    """A `receive` that first returns a body that has already been read."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Any:
        return next(messages, None) or await receive()

    return replay


def _with_safe_headers(send: Any) -> Any:
    """A `send` that adds this server's security headers."""

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *SAFE_HEADERS, NO_FRAMES]}
        await send(message)

    return send_with_headers


def _json(value: Any) -> Response:
    return Response(encode(value))
