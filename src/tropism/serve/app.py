"""The server's ASGI application: passes requests and sockets to their handlers."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tropism.errors import ServerError
from tropism.serve import errors
from tropism.serve.http import routes
from tropism.serve.http.api import HttpApi
from tropism.serve.http.auth import AuthMiddleware
from tropism.serve.http.connection import SocketCount
from tropism.serve.http.messages import SESSION_HEADER, HttpRequest, Response, error_response, read_data, send_response
from tropism.serve.inspect.inspector import Inspector
from tropism.serve.metrics import Metrics
from tropism.serve.recordings.protocol import Recordings
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.settings import Settings
from tropism.serve.storage.protocol import Journal
from tropism.serve.tools.endpoint import serve_rpc_socket
from tropism.serve.websocket.connection import Connection


class App:
    """Serves each environment under /envs/{id}, and the first one at / too.

    `absent` maps the environments that are not available to the reason.
    """

    def __init__(
        self,
        environments: Mapping[str, ServedEnvironment],
        settings: Settings | None = None,
        journal: Journal | None = None,
        absent: Mapping[str, str] | None = None,
        recordings: Recordings | None = None,
    ):
        self.absent = dict(absent or {})
        self.settings = settings or Settings()
        processes = self.settings.processes
        self.environments = {id: each.isolate() if processes else each for id, each in environments.items()}
        self.default = next(iter(self.environments.values()))
        self.sessions = SessionRegistry(self.environments, self.settings, journal, recordings)
        self.inspector = Inspector(self.sessions)
        self.metrics = Metrics(self.sessions)
        self._api = HttpApi(self.sessions, self.inspector, self.metrics, self.absent)
        self._middleware = AuthMiddleware(self._route, self.settings)
        self.sockets = SocketCount(self.settings.max_sockets)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._middleware(scope, receive, send)

    async def _route(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        root, environment, path = self._resolve(scope)
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send, environment, path)
        else:
            await send_response(scope, send, await self._respond(scope, receive, root, environment, path))

    def _resolve(self, scope: Any) -> tuple[str, ServedEnvironment | None, str]:
        """`(root, environment, path)`: /envs/Echo-v0/step has the path /step below the root /envs/Echo-v0.

        The root /envs/Echo-v0/s/SESSION names a session, as the header X-Session-Id does.
        """
        path = scope["path"]
        if not path.startswith("/envs/"):
            return "", self.default, path
        id, slash, rest = path.removeprefix("/envs/").partition("/")
        environment = self.environments.get(id)
        if not rest.startswith("s/"):
            return f"/envs/{id}", environment, slash + rest
        session, slash, rest = rest.removeprefix("s/").partition("/")
        scope["header_map"][SESSION_HEADER] = session
        return f"/envs/{id}/s/{session}", environment, slash + rest

    async def _respond(
        self, scope: Any, receive: Any, root: str, environment: ServedEnvironment | None, path: str
    ) -> Response:
        request = None
        try:
            if environment is None:
                known = ", ".join(self.environments)
                raise ServerError("NOT_FOUND", f"no environment at {root!r}; this server has: {known}")
            route, parameters = routes.find_route(scope["method"], path, root)
            data = {} if route.request is None else await read_data(scope, receive, self.settings, route.request)
            request = HttpRequest(scope, root, environment, route.path[1:], route.request, parameters, data)
            response = await route.handler(self._api, request)
            if request.session is not None:
                self.metrics.requests[request.kind] += 1
            return response
        except asyncio.CancelledError:  # the grace period of the shutdown is over
            reason = ServerError("STOPPING", "the server stopped before this request finished")
        except Exception as error:  # the outermost level: every error gets a reply
            session = None if request is None else request.session
            context = {} if session is None else session.log_context
            # The path of the route: the path of a request may contain the id of a session or of an agent.
            where = path if request is None else f"/{request.kind}"
            reason = errors.to_server_error(error, path=where, **context)
        self.metrics.errors[reason.code] += 1
        response = error_response(reason)
        if reason.code == "METHOD_NOT_ALLOWED":
            response.headers = [(b"allow", ", ".join(routes.allowed_methods(path)).encode())]
        return response

    async def _serve_socket(self, scope: Any, receive: Any, send: Any, environment: Any, path: str) -> None:
        if environment is None or path not in ("/ws", "/mcp"):
            expected = f"expected /envs/ID/ws with one of {', '.join(self.environments)}"
            error = ServerError("NOT_FOUND", f"no socket at {scope['path']!r}; {expected}")
            await send_response(scope, send, error_response(error))
            return
        if not self.sockets.acquire():
            message = f"all {self.sockets.limit} sockets of this server are open; try again later"
            await send_response(scope, send, error_response(ServerError("CAPACITY_REACHED", message)))
            return
        try:
            with suppress(asyncio.CancelledError):  # the server has stopped and closed the socket
                if path == "/mcp":
                    await serve_rpc_socket(self.sessions, environment, scope, receive, send)
                else:
                    connection = Connection(self.sessions, environment, scope["owner"], self.metrics)
                    await connection.serve(scope, receive, send)
        finally:
            self.sockets.release()

    async def _lifespan(self, receive: Any, send: Any) -> None:
        """ASGI's start-up and shutdown events."""
        await receive()
        evicting = asyncio.create_task(self.sessions.evict_idle())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        evicting.cancel()
        await self.inspector.stop()
        await self.sessions.stop()
        await send({"type": "lifespan.shutdown.complete"})
