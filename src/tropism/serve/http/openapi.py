"""The OpenAPI document of one environment, with schemas generated from its spaces."""

from typing import Any

from tropism import __version__
from tropism.serve.errors import STATUS
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.requests import LONGEST_NUMBER

PROTOCOL = "1.0.0"  # of the HTTP interface; OpenEnv's validator reads it
NULLABLE_STRING = {"type": ["string", "null"], "maxLength": 255}
SEED = {"type": ["integer", "null"], "minimum": 0, "description": "Determines all randomness of the episode."}
REQUEST_ID = NULLABLE_STRING | {"description": "Repeating it returns the recorded reply and does not step again."}
STEP_EXTRAS = {"timeout_s": {"type": ["number", "null"], "exclusiveMinimum": 0}, "request_id": REQUEST_ID}
OPTIONS = {"type": ["object", "null"], "description": "Reset options of this environment, such as params."}
ERROR = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "code": {"type": "string", "enum": list(STATUS)},
        "id": {"type": "string"},
    },
    "required": ["message", "code"],
}
WATCH_ID_PATTERN = "^[A-Za-z0-9_-]+$"
ORIGIN = {"type": "string", "description": "The id of a snapshot of this session, or 'now' for its current state."}
STEP = {
    "type": "object",
    "properties": {"step": {"type": "integer", "minimum": 0}},
    "required": ["step"],
    "additionalProperties": False,
    "description": "A step of the current episode, which is replayed up to that step.",
}
IMAGE = {
    "name": "of",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "An image field of the observation (x-image in its schema); 'value' where it has no fields.",
}
PICTURE = {"image/png": {"schema": {"type": "string", "format": "binary"}}}
RECORDING = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0},
        "episode_id": {"type": ["string", "null"]},
        "seed": {"type": ["string", "null"]},
        "steps": {"type": "integer", "minimum": 0},
        "return": {"type": ["number", "null"]},
        "lifecycle": {"enum": ["ready", "terminated", "truncated"]},
        "parent": {"type": ["array", "null"], "items": {"type": "integer"}, "description": "Episode and step."},
        "error": {"type": "string", "description": "Why the recording cannot be read."},
    },
    "required": ["number"],
}


def document(environment: ServedEnvironment, root: str) -> dict[str, Any]:
    """Paths, requests and responses of this environment."""
    schema = environment.form.schema()
    timestep = _timestep_schema(schema["observation"])
    state = schema["state"]
    names = {"session_id": {"type": "string"}, "view": {"type": "string"}}
    first = timestep | {"properties": timestep["properties"] | names}
    reset = {
        "seed": SEED,
        "episode_id": NULLABLE_STRING | {"minLength": 1},
        "options": OPTIONS,
        "request_id": REQUEST_ID,
    }
    begin = _object(reset) | {"additionalProperties": True}  # further fields are options
    step = _object({"action": schema["action"], **STEP_EXTRAS}, ["action"])
    snapshot = _object({"snapshot_id": {"type": "string"}, **state["properties"]}, ["snapshot_id"])
    forked = {"from": {"anyOf": [ORIGIN, STEP]}, "request_id": REQUEST_ID, "seed": SEED}
    fork = _object({**names, **state["properties"]}, list(names))
    origin = {"from": ORIGIN, "request_id": REQUEST_ID}
    paths = {
        "/reset": _post("Begin an episode; the first one opens a session.", begin, first),
        "/step": _post("Take one action.", step, timestep),
        "/state": _get("The episode and the steps taken in it.", state, of_session=True),
        "/snapshot": _post("Save a snapshot.", _object({"request_id": REQUEST_ID}), snapshot),
        "/restore": _post("Restore a snapshot.", _object(origin, ["from"]), first),
        "/fork": _post("Fork the session.", _object(forked), fork),
        "/history": _get("The episode so far: its seed, options and actions.", {"type": "object"}, of_session=True),
        "/close": _post("Close the session.", _object({}), _object({"closed": {"type": "boolean"}})),
        "/schema": _get("Schemas of actions, observations and states.", {"type": "object"}),
        "/metadata": _get("Name and description of the environment.", {"type": "object"}),
        "/health": _get("The health of the server.", {"type": "object"}),
        "/list_environments": _get("The environments of this server.", {"type": "array", "items": {"type": "object"}}),
        **_inspect_paths(fork),
    }
    return _without_prefix_items(
        {
            "openapi": "3.1.0",
            "info": {
                "title": environment.id,
                "version": PROTOCOL,
                "description": environment.summary,
                "x-server": __version__,
            },
            "servers": [{"url": root or "/"}],
            "paths": paths,
            "components": {
                "schemas": {"Error": ERROR},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _inspect_paths(fork: dict[str, Any]) -> dict[str, Any]:
    """Paths to inspect sessions, by watch ids that do not permit stepping, and recordings."""
    text, episodes = {"text/plain": {"schema": {"type": "string"}}}, {"type": "array", "items": RECORDING}
    count = {"type": "integer", "minimum": 0}
    recordings = _object({"environment": {"type": "string"}, "count": count, "episodes": episodes}, ["episodes"])
    paths = {
        "/sessions": _get("The live sessions of this caller.", {"type": "object"}),
        **_episode_paths("/sessions/{view}", {"type": "string", "pattern": WATCH_ID_PATTERN}, fork),
        "/recordings": _get("The latest recorded episodes of this environment.", recordings),
        **_episode_paths("/recordings/{number}", count, fork),
        "/picture": _get("A picture of the environment, or its text if it does not render.", {}),
    }
    before = _query_parameter("before", "Only recordings with a smaller number.", required=False)
    paths["/recordings"]["get"]["parameters"] = [before]
    paths["/picture"]["get"]["responses"]["200"] = {"description": "done", "content": PICTURE | text}
    return paths


def _episode_paths(path: str, schema: dict[str, Any], fork: dict[str, Any]) -> dict[str, Any]:
    """The three requests about an episode that the page makes."""
    name = {"name": path.partition("{")[2][:-1], "in": "path", "required": True, "schema": schema}
    history = _get("The rows of the episode, replayed.", {"type": "object"})
    history["get"]["parameters"] = [name, _query_parameter("from", "The first row to return.", required=False)]
    picture = _get("The picture at a step, or an image of its observation.", {})
    picture["get"]["parameters"] = [
        name,
        _query_parameter("step", "The number of steps before the picture.", required=True),
        IMAGE,
    ]
    picture["get"]["responses"] |= {
        "200": {"description": "done", "content": PICTURE},
        "204": {"description": "no picture"},
    }
    request = _object({"step": {"type": "integer", "minimum": 0}, "seed": SEED}, ["step"])
    forked = _post("Fork the episode at a step into a new session.", request, fork)
    forked["post"]["parameters"] = [name]
    return {f"{path}/history": history, f"{path}/picture": picture, f"{path}/fork": forked}


def _query_parameter(name: str, description: str, *, required: bool) -> dict[str, Any]:
    """A whole number in the query."""
    schema = {"type": "integer", "minimum": 0, "maximum": 10**LONGEST_NUMBER - 1}
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}


def _timestep_schema(observation: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "observation": observation,
        "reward": {"type": ["number", "null"]},
        "done": {"type": "boolean"},
        "terminated": {"type": "boolean"},
        "truncated": {"type": "boolean"},
        "metadata": {"type": ["object", "null"]},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or [], "additionalProperties": False}


def _post(summary: str, body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    needed = bool(body["required"])
    content = {"application/json": {"schema": body}}
    return {
        "post": _operation(summary, reply, of_session=True) | {"requestBody": {"required": needed, "content": content}}
    }


def _get(summary: str, reply: dict[str, Any], *, of_session: bool = False) -> dict[str, Any]:
    return {"get": _operation(summary, reply, of_session=of_session)}


def _operation(summary: str, reply: dict[str, Any], *, of_session: bool) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses = {"200": {"description": "done", "content": {"application/json": {"schema": reply}}}}
    for status in sorted(set(STATUS.values())):
        responses[str(status)] = {"description": "error", "content": error}
    header = {"name": "X-Session-Id", "in": "header", "required": False, "schema": {"type": "string"}}
    return {"summary": summary, "responses": responses, "parameters": [header] if of_session else []}


def _without_prefix_items(schema: Any) -> Any:
    """Remove `prefixItems`, which some tools misread as an older draft of JSON Schema; `/schema` has them."""
    if isinstance(schema, list):
        return [_without_prefix_items(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    hidden = ("prefixItems", "items") if "prefixItems" in schema else ()
    return {name: _without_prefix_items(part) for name, part in schema.items() if name not in hidden}
