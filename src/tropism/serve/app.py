"""The server's one ASGI application: which path is answered by what."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tropism import __version__
from tropism.errors import ServerError
from tropism.serve.errors import STATUS
from tropism.serve.http import openapi
from tropism.serve.http import static as page_files
from tropism.serve.http.api import NO_CONTENT, Answer, Requests, refused, respond
from tropism.serve.http.auth import SAFE, UNFRAMED, Guard, refuse
from tropism.serve.inspect.inspector import Views
from tropism.serve.inspect.thumbnail import PNG
from tropism.serve.metrics import TYPE, Metrics
from tropism.serve.recordings.protocol import Recordings
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.registry import Sessions
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
SEEN = ("sessions", "recordings")
VIEWED = ("history", "picture", "fork")  # what can be asked of sessions/{view}/… and recordings/{number}/…


class App:
    """Every environment under /envs/{id}, the first one at / too; `absent` ones are missing for a reason."""

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
        self.environments = {id: each.apart() if processes else each for id, each in environments.items()}
        self.default = next(iter(self.environments.values()))
        self.sessions = Sessions(self.environments, self.settings, store, recordings)
        self.views = Views(self.sessions)
        self.tools = Tools(self.sessions, self.environments)
        self.metrics = Metrics(self.sessions)
        self.requests = Requests(self.sessions, self.metrics, self.settings)
        self._door = Guard(self._enter, self.settings)
        self._mcp = _mcp_door(self.tools)
        self._sockets = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._door(scope, receive, send)

    async def _enter(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        root, environment, name = self._place(scope["path"])
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send, environment, name)
            return
        if name == "mcp" and environment is not None:
            await self._serve_mcp(scope, receive, send, environment)
            return
        try:
            answer = await self._answer(scope, receive, root, environment, name)
        except asyncio.CancelledError:  # the server has stopped, and waited long enough
            answer = refused(ServerError("STOPPING", "the server stopped before this was done"), self.metrics)
        except Exception as error:  # the outermost edge: every error has a reply
            answer = refused(error, self.metrics, scope)
            if answer.status == STATUS["METHOD_NOT_ALLOWED"]:
                answer.headers = [(b"allow", _method(name).encode())]
        await respond(send, answer, root)

    def _place(self, path: str) -> tuple[str, ServedEnvironment | None, str]:
        """`(root, environment, name)` of a path: /envs/Echo-v0/step, or /step for the default environment."""
        if not path.startswith("/envs/"):
            return "", self.default, path[1:]
        id, _, name = path.removeprefix("/envs/").partition("/")
        return f"/envs/{id}", self.environments.get(id), name

    async def _answer(
        self, scope: Any, receive: Any, root: str, environment: ServedEnvironment | None, name: str
    ) -> Answer:
        if environment is None:
            known = ", ".join(self.environments)
            raise ServerError("NOT_FOUND", f"no environment at {root!r}; this server has: {known}")
        whose, last = _viewed(name)
        if last not in POSTS and last not in GETS and not _is_page(root, name):
            raise ServerError("NOT_FOUND", f"no page {scope['path']!r}; GET {root}/docs shows what there is")
        if scope["method"] != _method(name):
            raise ServerError("METHOD_NOT_ALLOWED", f"{scope['method']} {scope['path']}; expected {_method(name)}")
        if _is_page(root, name):
            return page_files.answer(name.removeprefix("page/") if name else page_files.HOME)
        if whose is not None:
            return await self._look(*whose, last, scope, receive, environment)
        if name == "recordings":
            return Answer(await self.views.recordings(environment, await self.requests.data(scope, receive)))
        if name == "picture":
            portrait = await self.views.portrait(environment)
            return Answer(portrait.body, media_type=portrait.media_type)
        if name in POSTS or name in SESSION_GETS:
            self._check_open()
            return await self.requests.perform(name, scope, receive, environment)
        if name in ("schema", "openapi.json"):
            await environment.described(self.sessions.threads)
        return self._page(name, root, environment, scope["owner"])

    async def _look(
        self, folder: str, view: str, kind: str, scope: Any, receive: Any, environment: ServedEnvironment
    ) -> Answer:
        """A request about an episode that the caller may see, though it may not be the one who steps it."""
        data, owner, views = await self.requests.data(scope, receive), scope["owner"], self.views
        if kind == "fork":
            self._check_open()
        watched = views.session(view, owner) if folder == "sessions" else await views.recording(environment, view)
        if kind == "history":
            return Answer(await views.history(watched, data))
        if kind == "fork":
            return Answer(await views.fork(watched, owner, data))
        picture = await views.picture(watched, data)
        return Answer(b"", NO_CONTENT) if picture is None else Answer(picture, media_type=PNG)

    def _page(self, name: str, root: str, environment: ServedEnvironment, owner: str) -> Answer:
        """What can be read without a session."""
        match name:
            case "health":
                return _json({"status": "healthy", "version": __version__, "absent": self.absent})
            case "metadata":
                return _json(self._metadata(environment))
            case "schema":
                return _json(environment.form.annotated_schema())
            case "openapi.json":
                return _json(openapi.document(environment, root))
            case "docs":
                return page_files.answer(page_files.HOME)
            case "metrics":
                return Answer(self.metrics.text().encode(), media_type=TYPE)
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
            "pure": environment.env.traced,
            "blocking": bool(environment.env.blocking),
            "replayable": environment.replayable,
            "recordings": self.sessions.recordings.count(environment.id),
        }

    async def _socket(self, scope: Any, receive: Any, send: Any, environment: Any, name: str) -> None:
        most = self.settings.max_sockets
        if environment is None or name != "ws":
            words = f"expected /envs/ID/ws with one of {', '.join(self.environments)}"
            await refuse(scope, send, ServerError("NOT_FOUND", f"no socket at {scope['path']!r}; {words}"))
            return
        if self._sockets >= most:
            words = f"all {most} sockets of this server are open; try again later"
            await refuse(scope, send, ServerError("CAPACITY_REACHED", words))
            return
        self._sockets += 1
        connection = Connection(self.sessions, environment, scope["owner"], self.metrics)
        try:
            with suppress(asyncio.CancelledError):  # the server has stopped, and hung up
                await connection.serve(scope, receive, send)
        finally:
            self._sockets -= 1

    async def _serve_mcp(self, scope: Any, receive: Any, send: Any, environment: ServedEnvironment) -> None:
        """OpenEnv's JSON-RPC is answered here, all other requests by the MCP SDK."""
        if scope["method"] != "POST":
            await self._sdk(scope, receive, send)
            return
        try:
            body = await self.requests.body(scope, receive)
            request = decode(body)
        except ServerError as reason:
            answer = _json(jsonrpc.error(None, jsonrpc.PARSE_ERROR, reason.message))
            if reason.code in ("TOO_LARGE", "TOO_SLOW"):
                answer = refused(reason, self.metrics)
            await respond(send, answer, "")
            return
        if not jsonrpc.is_ours(request):
            await self._sdk(scope, _again(body, receive), send)
            return
        reply = await jsonrpc.answer(request, environment, scope["owner"], self.sessions, self.tools)
        await respond(send, _json(reply), "")

    async def _sdk(self, scope: Any, receive: Any, send: Any) -> None:
        if self._mcp is not None:
            await self._mcp.handle(scope, receive, _safely(send))
            return
        message = "this server speaks MCP when it is installed with the extra: pip install 'tropism[mcp]'"
        await respond(send, _json(jsonrpc.error(None, jsonrpc.NO_METHOD, message)), "")

    def _check_open(self) -> None:
        if self.sessions.stopping:
            raise ServerError("STOPPING", "the server is stopping")

    async def _live(self, receive: Any, send: Any) -> None:
        """Start-up and shutdown, as ASGI tells them."""
        await receive()
        expiring = asyncio.create_task(self.sessions.expire())
        async with self._mcp.run() if self._mcp is not None else nullcontext():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        expiring.cancel()
        await self.views.stop()
        self.sessions.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def drain(self) -> None:
        """Take no more requests, and wait for those under way."""
        await self.sessions.drain()


def _method(name: str) -> str:
    return "POST" if _viewed(name)[1] in POSTS else "GET"


def _viewed(name: str) -> tuple[tuple[str, str] | None, str]:
    """`((folder, view), what is asked)` of sessions/{view}/history and the like; `(None, name)` of all others."""
    folder, _, rest = name.partition("/")
    view, _, last = rest.partition("/")
    return ((folder, view), last) if folder in SEEN and last in VIEWED else (None, name)


def _is_page(root: str, name: str) -> bool:
    return not root and (not name or name.startswith("page/"))


def _mcp_door(tools: Tools) -> Any:
    """None where the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        return None
    return import_module("tropism.serve.tools.mcp").McpDoor(tools)


def _again(body: bytes, receive: Any) -> Callable[[], Any]:
    """A `receive` that gives a body which was read already."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Any:
        return next(messages, None) or await receive()

    return replay


def _safely(send: Any) -> Any:
    """A `send` whose replies have the headers that ours have."""

    async def send_safely(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *SAFE, UNFRAMED]}
        await send(message)

    return send_safely


def _json(value: Any) -> Answer:
    return Answer(encode(value))
