"""The route table, from which dispatch, 405 replies, the OpenAPI document and a table in docs/serve.md are made."""

import re
from functools import partial
from typing import Any

from tropism.errors import ServerError
from tropism.serve.http import openapi
from tropism.serve.http.api import BINARY, HttpApi
from tropism.serve.http.messages import HttpRequest, Response, Route, Trait, json_response
from tropism.serve.http.replies import (
    CloseReply,
    EnvironmentReply,
    FileReply,
    FilesReply,
    ForkReply,
    HealthReply,
    HistoryReply,
    ReadyReply,
    RecordingsReply,
    ResetReply,
    SchemaReply,
    SessionsReply,
    SnapshotReply,
    StateReply,
    TimelineReply,
    TimestepReply,
)
from tropism.serve.session.requests import (
    EmptyRequest,
    ForkRequest,
    ForkStepRequest,
    HistoryRequest,
    PictureRequest,
    RecordingsRequest,
    ResetRequest,
    RestoreRequest,
    StepRequest,
)
from tropism.serve.tools.endpoint import agent_rpc, caller_rpc

get, post, put = (partial(Route, method) for method in ("GET", "POST", "PUT"))


async def openapi_document(api: HttpApi, request: HttpRequest) -> Response:
    await request.environment.prepare_form(api.sessions.threads)
    return json_response(openapi.document(ROUTES, request.environment, api.sessions.settings.root_path + request.root))


def _timeline_routes(path: str) -> tuple[Route, ...]:
    """The requests about the current episode of a session, or about a recorded episode."""
    return (
        get(f"{path}/history", HistoryRequest, TimelineReply, HttpApi.timeline, "Its rows, one per step."),
        get(f"{path}/picture", PictureRequest, PNG, HttpApi.timeline_picture, "Its picture at a step, if any."),
        post(f"{path}/fork", ForkStepRequest, ForkReply, HttpApi.fork_timeline, "Fork it at a step."),
    )


PNG, TEXT, HTML = ("image/png",), ("text/plain",), ("text/html",)
FILES = (*HTML, "text/css", "text/javascript", "image/svg+xml")
SESSION, ONCE, PUBLIC = Trait.SESSION, Trait.SESSION | Trait.REQUEST_ID, Trait.PUBLIC
AGENT = PUBLIC | Trait.ROOT  # the agent id in the path is the credential
ROUTES = (
    post("/reset", ResetRequest, ResetReply, HttpApi.reset, "Begin an episode; the first opens a session.", ONCE),
    post("/step", StepRequest, TimestepReply, HttpApi.step, "Take one action.", ONCE),
    get("/state", EmptyRequest, StateReply, HttpApi.perform, "The episode and the steps taken in it.", SESSION),
    post("/snapshot", EmptyRequest, SnapshotReply, HttpApi.perform, "Save a snapshot.", ONCE),
    post("/restore", RestoreRequest, ResetReply, HttpApi.perform, "Restore a snapshot.", ONCE),
    post("/fork", ForkRequest, ForkReply, HttpApi.perform, "Fork the session.", ONCE),
    get(
        "/history",
        HistoryRequest,
        HistoryReply,
        HttpApi.perform,
        "The episode so far: seed, options and actions.",
        SESSION,
    ),
    get("/files", EmptyRequest, FilesReply, HttpApi.perform, "The files of the episode.", SESSION),
    get("/files/{path}", EmptyRequest, (BINARY,), HttpApi.read_file, "The content of a file.", SESSION),
    put("/files/{path}", bytes, FileReply, HttpApi.write_file, "Create or replace a file.", SESSION),
    post("/close", EmptyRequest, CloseReply, HttpApi.close, "Close the session.", SESSION),
    get("/schema", None, SchemaReply, HttpApi.schema, "JSON Schemas of actions, observations and states."),
    get("/metadata", None, EnvironmentReply, HttpApi.metadata, "Name and description of the environment."),
    get("/picture", None, PNG + TEXT, HttpApi.picture, "A picture of the environment, or else its text."),
    get(
        "/list_environments",
        None,
        list[EnvironmentReply],
        HttpApi.list_environments,
        "The environments of this server.",
    ),
    get("/health", None, HealthReply, HttpApi.health, "The health of the server.", PUBLIC),
    get("/ready", None, ReadyReply, HttpApi.ready, "Whether the server accepts requests; else 503.", PUBLIC),
    get("/metrics", None, TEXT, HttpApi.counters, "Counters in Prometheus's text format."),
    get("/sessions", None, SessionsReply, HttpApi.list_sessions, "The caller's 200 most recently used live sessions."),
    *_timeline_routes("/sessions/{view}"),
    get("/recordings", RecordingsRequest, RecordingsReply, HttpApi.list_recordings, "The latest recorded episodes."),
    *_timeline_routes("/recordings/{number}"),
    post(
        "/agent/{agent_id}/step",
        StepRequest,
        TimestepReply,
        HttpApi.agent_step,
        "Take one action in the session of this agent.",
        AGENT | Trait.REQUEST_ID,
    ),
    get(
        "/agent/{agent_id}/observation",
        EmptyRequest,
        TimestepReply,
        HttpApi.agent_observation,
        "The observation of this agent.",
        AGENT,
    ),
    post("/mcp", bytes, dict[str, Any], caller_rpc, "MCP, about the caller's sessions.", Trait.RPC),
    post(
        "/agent/{agent_id}/mcp",
        bytes,
        dict[str, Any],
        agent_rpc,
        "MCP, about the session of this agent.",
        AGENT | Trait.RPC,
    ),
    get("/openapi.json", None, dict[str, Any], openapi_document, "This interface as an OpenAPI document."),
    get("/docs", None, HTML, HttpApi.page, "This interface as a page.", PUBLIC),
    get("/", None, HTML, HttpApi.page, "The page.", PUBLIC | Trait.ROOT),
    get("/page/{file}", None, FILES, HttpApi.page, "The files of the page.", PUBLIC | Trait.ROOT),
)


def _pattern(path: str) -> "re.Pattern[str]":
    """Matches a path with parameters; only that of a file may have slashes."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path).replace("(?P<path>[^/]+)", "(?P<path>(?s:.+))"))


_FIXED: dict[str, dict[str, Route]] = {}  # by path and method
for _route in ROUTES:
    _FIXED.setdefault(_route.path, {})[_route.method] = _route
_PATTERNS = [(_pattern(path), _FIXED.pop(path)) for path in list(_FIXED) if "{" in path]


def is_public(path: str) -> bool:
    return path.startswith("/agent/") or any(Trait.PUBLIC in route.traits for route in _match(path)[0].values())


def allowed_methods(path: str) -> list[str]:
    return list(_match(path)[0])


def find_route(method: str, path: str, root: str) -> tuple[Route, dict[str, str]]:
    """The route of a path below `root`, and the parameters in the path."""
    routes, parameters = _match(path)
    if not routes or (root and all(Trait.ROOT in route.traits for route in routes.values())):
        raise ServerError("NOT_FOUND", f"no page {root + path!r}; GET {root}/docs lists them")
    if method not in routes:
        raise ServerError("METHOD_NOT_ALLOWED", f"{method} {root}{path}; expected {' or '.join(routes)}")
    return routes[method], parameters


def _match(path: str) -> tuple[dict[str, Route], dict[str, str]]:
    """The routes of a path, by method, and the parameters in it."""
    if path in _FIXED:
        return _FIXED[path], {}
    for pattern, routes in _PATTERNS:
        if match := pattern.fullmatch(path):
            return routes, match.groupdict()
    return {}, {}
