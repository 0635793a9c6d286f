"""The OpenAPI document of one environment, generated from the route table and the environment's spaces."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from tropism import __version__
from tropism.serve.errors import STATUS
from tropism.serve.http.messages import Route, Trait
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.requests import EmptyRequest, Number, RequestId, WatchId

PROTOCOL = "1.0.0"  # of the HTTP interface; OpenEnv's validator reads it
PATH_PARAMETERS = {"view": WatchId, "number": Number, "path": str}
SESSION_HEADER = {"name": "X-Session-Id", "in": "header", "required": False, "schema": {"type": "string"}}
ERROR = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "code": {"type": "string", "enum": list(STATUS)},
        "id": {"type": "string"},
    },
    "required": ["message", "code"],
}


def document(routes: Iterable[Route], environment: ServedEnvironment, root: str) -> dict[str, Any]:
    """Paths, requests and responses of this environment."""
    spaces = {name.title(): schema for name, schema in environment.form.schema().items()}
    paths: dict[str, Any] = {}
    for route in routes:
        if not route.traits & (Trait.ROOT | Trait.RPC):
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, spaces)
    about = {"title": environment.id, "version": PROTOCOL, "description": environment.summary, "x-server": __version__}
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": about,
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}, "securitySchemes": schemes},
    }


def _operation(route: Route, spaces: dict[str, Any]) -> dict[str, Any]:
    request = request_schema(route, spaces)
    operation = {
        "summary": route.summary,
        "parameters": _parameters(route, request),
        "responses": _responses(route, spaces),
    }
    if route.request is bytes:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    elif route.method == "POST":
        content = {"application/json": {"schema": request}}
        operation["requestBody"] = {"required": bool(request["required"]), "content": content}
    return operation


def request_schema(route: Route, spaces: dict[str, Any]) -> dict[str, Any]:
    """The schema of the body, or of the query."""
    schema = json_schema(EmptyRequest if route.request in (None, bytes) else route.request, spaces)
    if Trait.REQUEST_ID in route.traits:
        schema["properties"]["request_id"] = json_schema(RequestId | None, spaces)
    return schema


def _parameters(route: Route, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters in the path, in the query and in the headers."""
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": json_schema(PATH_PARAMETERS[name], {})}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    if route.method == "GET":
        for name, schema in request["properties"].items():
            schema = schema["anyOf"][0] if "anyOf" in schema else schema  # a query cannot be null
            about = {"description": schema["description"]}
            parameters.append(
                {"name": name, "in": "query", "required": name in request["required"], "schema": schema} | about
            )
    return parameters + [SESSION_HEADER] * (Trait.SESSION in route.traits)


def _responses(route: Route, spaces: dict[str, Any]) -> dict[str, Any]:
    if isinstance(route.reply, tuple):
        content = {media_type: {"schema": {"type": "string"}} for media_type in route.reply}
    else:
        content = {"application/json": {"schema": json_schema(route.reply, spaces)}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses = {"200": {"description": "done", "content": content}}
    if route.reply == ("image/png",):
        responses["204"] = {"description": "no picture"}
    return responses | {
        str(status): {"description": "error", "content": error} for status in sorted({*STATUS.values()})
    }


def json_schema(kind: Any, spaces: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a type, with all references replaced by what they refer to."""
    schema = msgspec.json.schema(kind)
    return _inline(schema, schema.pop("$defs", {}) | spaces)


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replace references, and remove `prefixItems`, which some tools misread as an older draft; `/schema` has them."""
    if isinstance(schema, list):
        return [_inline(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    hidden = ("prefixItems", "items") if "prefixItems" in schema else ()
    return {name: _inline(part, definitions) for name, part in schema.items() if name not in hidden}
