"""One route of the HTTP interface."""

from collections.abc import Awaitable, Callable
from enum import Flag, auto
from typing import Any, NamedTuple

from tropism.serve.http.messages import HttpRequest, Response


class Trait(Flag):
    """What else is true of a route."""

    NONE = 0
    SESSION = auto()  # concerns the session that the header X-Session-Id or a cookie names
    REQUEST_ID = auto()  # takes a request_id, which makes it idempotent
    PUBLIC = auto()  # needs no token: a browser loads the page before it has one
    ROOT = auto()  # not under /envs/{id}


class Route(NamedTuple):
    """One request of the HTTP interface. Its path follows /envs/{id}, or stands alone for the default environment.

    `request` is the type of the body, or of the query of a GET; None if neither is read. `reply` is the type of the
    JSON reply, or the media types of another one.
    """

    method: str
    path: str
    request: Any
    reply: Any
    handler: Callable[[Any, HttpRequest], Awaitable[Response]]
    summary: str
    traits: Trait = Trait.NONE
