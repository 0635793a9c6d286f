"""The OpenAPI document of one environment: made from its spaces, never written by hand."""

from typing import Any

from tropism import __version__
from tropism.serve.errors import STATUS
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.requests import LONGEST_NUMBER

PROTOCOL = "1.0.0"  # of the HTTP interface; OpenEnv's validator reads it
NULLABLE_STRING = {"type": ["string", "null"], "maxLength": 255}
SEED = {"type": ["integer", "null"], "minimum": 0, "description": "Where all randomness of the episode comes from."}
REQUEST_ID = NULLABLE_STRING | {"description": "Repeating it returns the recorded reply and does not step again."}
STEP_EXTRAS = {"timeout_s": {"type": ["number", "null"], "exclusiveMinimum": 0}, "request_id": REQUEST_ID}
OPTIONS = {"type": ["object", "null"], "description": "Options of this environment's reset, such as params."}
ERROR = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "code": {"type": "string", "enum": list(STATUS)},
        "id": {"type": "string"},
    },
    "required": ["message", "code"],
}
VIEW = "^[A-Za-z0-9_-]+$"
ORIGIN = {"type": "string", "description": "The id of a snapshot of this session; 'now' is where it stands."}
STEP = {
    "type": "object",
    "properties": {"step": {"type": "integer", "minimum": 0}},
    "required": ["step"],
    "additionalProperties": False,
    "description": "A step of the current episode, which is replayed up to there.",
}
IMAGE = {
    "name": "of",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "An image field of the observation (x-image in its schema); 'value' where it has no fields.",
}
PICTURE = {"image/png": {"schema": {"type": "string", "format": "binary"}}}
RECORDED = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0},
        "episode_id": {"type": ["string", "null"]},
        "seed": {"type": ["string", "null"]},
        "steps": {"type": "integer", "minimum": 0},
        "return": {"type": ["number", "null"]},
        "lifecycle": {"enum": ["ready", "terminated", "truncated"]},
        "parent": {"type": ["array", "null"], "items": {"type": "integer"}, "description": "Episode and step."},
        "error": {"type": "string", "description": "Why it cannot be read."},
    },
    "required": ["number"],
}


def document(environment: ServedEnvironment, root: str) -> dict[str, Any]:
    """What can be asked of this environment, and what comes back."""
    schema = environment.form.schema()
    outcome = _outcome(schema["observation"])
    state = schema["state"]
    names = {"session_id": {"type": "string"}, "view": {"type": "string"}}
    first = outcome | {"properties": outcome["properties"] | names}
    reset = {
        "seed": SEED,
        "episode_id": NULLABLE_STRING | {"minLength": 1},
        "options": OPTIONS,
        "request_id": REQUEST_ID,
    }
    begin = _object(reset) | {"additionalProperties": True}  # which are options too
    step = _object({"action": schema["action"], **STEP_EXTRAS}, ["action"])
    snapshot = _object({"snapshot_id": {"type": "string"}, **state["properties"]}, ["snapshot_id"])
    forked = {"from": {"anyOf": [ORIGIN, STEP]}, "request_id": REQUEST_ID, "seed": SEED}
    fork = _object({**names, **state["properties"]}, list(names))
    origin = {"from": ORIGIN, "request_id": REQUEST_ID}
    paths = {
        "/reset": _post("Begin an episode; the first one opens a session.", begin, first),
        "/step": _post("Take one action.", step, outcome),
        "/state": _get("The episode and the steps taken in it.", state, of_session=True),
        "/snapshot": _post("Remember this moment.", _object({"request_id": REQUEST_ID}), snapshot),
        "/restore": _post("Go back to a snapshot.", _object(origin, ["from"]), first),
        "/fork": _post("A new session that goes on from here.", _object(forked), fork),
        "/history": _get("The episode so far: its seed, options and actions.", {"type": "object"}, of_session=True),
        "/close": _post("End the session.", _object({}), _object({"closed": {"type": "boolean"}})),
        "/schema": _get("Schemas of actions, observations and states.", {"type": "object"}),
        "/metadata": _get("Name and description of the environment.", {"type": "object"}),
        "/health": _get("Whether the server is well.", {"type": "object"}),
        "/list_environments": _get("Every environment of this server.", {"type": "array", "items": {"type": "object"}}),
        **_looks(fork),
    }
    return _read_by_all(
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


def _looks(fork: dict[str, Any]) -> dict[str, Any]:
    """What can be seen of sessions by their views, which do not let one step them, and of recordings."""
    words, episodes = {"text/plain": {"schema": {"type": "string"}}}, {"type": "array", "items": RECORDED}
    count = {"type": "integer", "minimum": 0}
    recordings = _object({"environment": {"type": "string"}, "count": count, "episodes": episodes}, ["episodes"])
    paths = {
        "/sessions": _get("The live sessions of this caller.", {"type": "object"}),
        **_seen("/sessions/{view}", {"type": "string", "pattern": VIEW}, fork),
        "/recordings": _get("The latest recorded episodes of this environment.", recordings),
        **_seen("/recordings/{number}", count, fork),
        "/picture": _get("A picture of the environment, or its words where it draws nothing.", {}),
    }
    before = _asked("before", "Those with a smaller number.", required=False)
    paths["/recordings"]["get"]["parameters"] = [before]
    paths["/picture"]["get"]["responses"]["200"] = {"description": "done", "content": PICTURE | words}
    return paths


def _seen(place: str, schema: dict[str, Any], fork: dict[str, Any]) -> dict[str, Any]:
    """What can be asked of an episode: the three requests that the page is made of."""
    name = {"name": place.partition("{")[2][:-1], "in": "path", "required": True, "schema": schema}
    history = _get("Each moment of the episode, replayed.", {"type": "object"})
    history["get"]["parameters"] = [name, _asked("from", "Rows from here.", required=False)]
    picture = _get("The environment's picture at a step, or an image of its observation.", {})
    picture["get"]["parameters"] = [name, _asked("step", "After this many steps.", required=True), IMAGE]
    picture["get"]["responses"] |= {
        "200": {"description": "done", "content": PICTURE},
        "204": {"description": "there is no picture"},
    }
    asked = _object({"step": {"type": "integer", "minimum": 0}, "seed": SEED}, ["step"])
    forked = _post("A new session that goes on from a step.", asked, fork)
    forked["post"]["parameters"] = [name]
    return {f"{place}/history": history, f"{place}/picture": picture, f"{place}/fork": forked}


def _asked(name: str, description: str, *, required: bool) -> dict[str, Any]:
    """A step or a number in the address."""
    schema = {"type": "integer", "minimum": 0, "maximum": 10**LONGEST_NUMBER - 1}
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}


def _outcome(observation: dict[str, Any]) -> dict[str, Any]:
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
        responses[str(status)] = {"description": "refused", "content": error}
    header = {"name": "X-Session-Id", "in": "header", "required": False, "schema": {"type": "string"}}
    return {"summary": summary, "responses": responses, "parameters": [header] if of_session else []}


def _read_by_all(schema: Any) -> Any:
    """Without the entries of fixed lists, which some tools take for those of an older draft; `/schema` tells them."""
    if isinstance(schema, list):
        return [_read_by_all(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    hidden = ("prefixItems", "items") if "prefixItems" in schema else ()
    return {name: _read_by_all(part) for name, part in schema.items() if name not in hidden}
