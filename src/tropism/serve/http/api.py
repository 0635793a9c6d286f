"""The handlers of HTTP requests: sessions of the caller, inspection, and documents."""

from base64 import b64decode
from collections.abc import Mapping

from tropism import __version__
from tropism.errors import DivergedError, ServerError, StateError
from tropism.serve.http import static
from tropism.serve.http.messages import (
    NO_CONTENT,
    SESSION_HEADER,
    Headers,
    HttpRequest,
    Response,
    json_response,
    with_metadata,
)
from tropism.serve.http.replies import CloseReply, EnvironmentReply, HealthReply, ReadyReply
from tropism.serve.inspect.follower import TimelineFollower
from tropism.serve.inspect.inspector import Inspector
from tropism.serve.inspect.thumbnail import PNG
from tropism.serve.metrics import TYPE, Metrics
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import public_reply
from tropism.serve.session.live import LiveSession
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.session.timeout import step_within
from tropism.serve.tools.actions import current_observation
from tropism.wire.codec import decode

BINARY = "application/octet-stream"
STEP_COUNT_HEADER = b"x-step-count"  # of a reply that is not JSON


class HttpApi:
    """One method for each handler of the route table."""

    def __init__(self, sessions: SessionRegistry, inspector: Inspector, metrics: Metrics, absent: Mapping[str, str]):
        self.sessions = sessions
        self.inspector = inspector
        self.metrics = metrics
        self.absent = dict(absent)

    async def reset(self, request: HttpRequest) -> Response:
        """Reset the caller's session; without one, open a session, which is closed if the reset fails."""
        found = await self._find_session(request)
        session = request.session = found or await self.sessions.open(request.environment, request.owner)
        try:
            body = await session.perform("reset", request.data, request.take_request_id())
        except BaseException:
            if found is None:
                await self.sessions.close(session)
            raise
        return Response(with_metadata(body), headers=self._session_headers(session, request.root))

    async def step(self, request: HttpRequest) -> Response:
        return Response(with_metadata(await self._step(await self._session(request), request)))

    async def _step(self, session: LiveSession, request: HttpRequest) -> bytes:
        request_id, step = request.take_request_id(), request.parse()
        if step.timeout_s is None:
            return await session.perform("step", step.action, request_id, step.position)
        return await step_within(session, step.timeout_s, step.action, request_id, step.position)

    async def agent_step(self, request: HttpRequest) -> Response:
        session = await self._agent_session(request)
        body = public_reply(await self._step(session, request), session.environment.env.private_info)
        return Response(with_metadata(body))

    async def agent_observation(self, request: HttpRequest) -> Response:
        session = await self._agent_session(request)
        request.parse()
        return Response(with_metadata(await current_observation(session)))

    async def _agent_session(self, request: HttpRequest) -> LiveSession:
        self._check_open()
        request.session = await self.sessions.find_agent(request.parameters["agent_id"])
        return request.session

    async def perform(self, request: HttpRequest) -> Response:
        """Any other request that sockets have too."""
        self.sessions.check_rights(request.kind, request.owner)
        session = await self._session(request)
        body = await session.perform(request.kind, request.data, request.take_request_id())
        return Response(with_metadata(body) if request.kind == "restore" else body)

    async def read_file(self, request: HttpRequest) -> Response:
        request.parse()
        reply = decode(await (await self._session(request)).perform("read_file", {"path": request.parameters["path"]}))
        step_count = str(reply["step_count"]).encode()
        return Response(b64decode(reply["data"]), media_type=BINARY, headers=[(STEP_COUNT_HEADER, step_count)])

    async def write_file(self, request: HttpRequest) -> Response:
        data = {"path": request.parameters["path"], "data": request.data["data"]}
        return Response(await (await self._session(request)).perform("write_file", data))

    async def close(self, request: HttpRequest) -> Response:
        session = await self._session(request)
        request.parse()
        return json_response(CloseReply(closed=True, step_count=await self.sessions.close(session)))

    def _session_headers(self, session: LiveSession, root: str) -> Headers:
        """The id of a session in a header, and in a cookie for the paths of its environment."""
        path = f"{self.sessions.settings.root_path}{root}" or "/"
        cookie = f"{_cookie_name(session.environment)}={session.id}; Path={path}; HttpOnly; SameSite=Strict"
        return [(SESSION_HEADER.encode(), session.id.encode()), (b"set-cookie", cookie.encode())]

    async def _session(self, request: HttpRequest) -> LiveSession:
        session = request.session = await self._find_session(request)
        if session is None:
            message = "needs a session; POST /reset opens one and sets a cookie, or send the header X-Session-Id"
            raise StateError("session", None, "a session", f"{request.kind} {message}")
        return session

    async def _find_session(self, request: HttpRequest) -> LiveSession | None:
        """The session named by the header, else by the cookie.

        The cookie of an unknown session is ignored; for a reset, so is that of a session that cannot be resumed.
        """
        self._check_open()
        headers, environment = request.scope["header_map"], request.environment
        if SESSION_HEADER in headers:
            return await self.sessions.find(headers[SESSION_HEADER], environment, request.owner)
        id = _cookie(headers, _cookie_name(environment))
        if id is None:
            return None
        try:
            return await self.sessions.find(id, environment, request.owner)
        except DivergedError:
            if request.kind != "reset":
                raise
        except ServerError as error:
            if error.code != "SESSION_ERROR":
                raise
        return None

    def _check_open(self) -> None:
        if self.sessions.stopping:
            raise ServerError("STOPPING", "the server is stopping")

    async def list_sessions(self, request: HttpRequest) -> Response:
        return json_response(self.sessions.rows(request.owner))

    async def list_recordings(self, request: HttpRequest) -> Response:
        return Response(await self.inspector.recordings(request.environment, request.parse()))

    async def _follow(self, request: HttpRequest) -> TimelineFollower:
        """The episode of a session, by its watch id, or of a recording, by its number."""
        self.sessions.check_rights("history", request.owner)
        if "view" in request.parameters:
            return self.inspector.follow_session(request.parameters["view"], request.owner)
        return await self.inspector.follow_recording(request.environment, request.parameters["number"])

    async def timeline(self, request: HttpRequest) -> Response:
        return Response(await self.inspector.history(await self._follow(request), request.parse()))

    async def timeline_picture(self, request: HttpRequest) -> Response:
        picture = await self.inspector.picture(await self._follow(request), request.parse())
        return Response(b"", NO_CONTENT) if picture is None else Response(picture, media_type=PNG)

    async def fork_timeline(self, request: HttpRequest) -> Response:
        self._check_open()
        return Response(await self.inspector.fork(await self._follow(request), request.owner, request.parse()))

    async def picture(self, request: HttpRequest) -> Response:
        thumbnail = await self.inspector.thumbnail(request.environment)
        return Response(thumbnail.body, media_type=thumbnail.media_type)

    async def health(self, _: HttpRequest) -> Response:
        served = {each.id: each.env.unavailable_reason() for each in self.sessions.environments.values()}
        failing = {id: reason for id, reason in served.items() if reason is not None}  # since the server started
        return json_response(HealthReply("healthy", __version__, self.absent | failing))

    async def ready(self, _: HttpRequest) -> Response:
        """503 as soon as the server is stopping, so that a load balancer sends no more requests."""
        self._check_open()
        return json_response(ReadyReply("ready"))

    async def metadata(self, request: HttpRequest) -> Response:
        return json_response(self._metadata(request.environment))

    async def list_environments(self, _: HttpRequest) -> Response:
        return json_response([self._metadata(each) for each in self.sessions.environments.values()])

    def _metadata(self, environment: ServedEnvironment) -> EnvironmentReply:
        return EnvironmentReply(
            name=environment.id,
            description=environment.summary,
            version=__version__,
            url=f"/envs/{environment.id}",
            pure=environment.env.pure,
            blocking=bool(environment.env.traits.blocking),
            replayable=environment.replayable,
            recordings=self.sessions.recordings.count(environment.id),
        )

    async def schema(self, request: HttpRequest) -> Response:
        await request.environment.prepare_form(self.sessions.threads)
        return json_response(request.environment.form.annotated_schema())

    async def counters(self, _: HttpRequest) -> Response:
        return Response(self.metrics.text().encode(), media_type=TYPE)

    async def page(self, request: HttpRequest) -> Response:
        return static.file_response(request.parameters.get("file", static.INDEX), self.sessions.settings.root_path)


def _cookie_name(environment: ServedEnvironment) -> str:
    return f"tropism.{environment.id}"


def _cookie(headers: dict[str, str], name: str) -> str | None:
    """The first cookie of this name: browsers send the one with the longest path first."""
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for key, _, value in pairs if key == name), None)
