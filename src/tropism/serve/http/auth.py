"""Authentication: checks host, origin and token, and sets `scope["owner"]` for the application behind it."""

import hmac
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tropism.errors import ServerError
from tropism.serve.http.messages import NO_CONTENT, Response, add_headers, error_response, send_response
from tropism.serve.http.routes import is_public
from tropism.serve.settings import LOOPBACK, Settings, owner_of

PREFLIGHT_HEADERS = [
    (b"access-control-allow-methods", b"GET, POST, PUT"),
    (b"access-control-max-age", b"600"),
    (b"access-control-allow-headers", b"authorization, content-type, x-session-id"),
]
ANONYMOUS = "anybody"  # the owner of sessions on a server without tokens, as stored in journals


class AuthMiddleware:
    """ASGI middleware that checks Host, Origin and token of every HTTP request and socket."""

    def __init__(self, app: Any, settings: Settings):
        self.app = app
        self.settings = settings
        self.hosts = {host.lower() for host in (*LOOPBACK, "[::1]", settings.host, *settings.allowed_hosts)}
        # With tokens any host is allowed: a page of another site that calls this server does not know the token.
        self.any_host = bool(settings.tokens) and not settings.allowed_hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["path"].startswith(f"{self.settings.root_path}/"):  # a proxy may remove the root path, or leave it
            scope["path"] = scope["path"].removeprefix(self.settings.root_path)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if sum(name == b"host" for name, _ in scope["headers"]) > 1:
                raise ServerError("BAD_REQUEST", "the request has several Host headers; expected one")
            self._check_host(headers)
            if scope["type"] == "http" and scope["method"] == "OPTIONS" and "origin" in headers:
                await self._send_preflight(scope, headers, send)
                return
            scope["owner"] = self._owner(scope["path"], headers)
            scope["query"] = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            scope["header_map"] = headers
        except ServerError as error:
            await send_response(scope, send, error_response(error))
            return
        await self.app(scope, receive, self._with_cors(headers, send))

    async def _send_preflight(self, scope: Any, headers: dict[str, str], send: Any) -> None:
        """Answer a CORS preflight request."""
        response = Response(b"", NO_CONTENT, headers=PREFLIGHT_HEADERS)
        await send_response(scope, self._with_cors(headers, send), response)

    def _with_cors(self, headers: dict[str, str], send: Any) -> Any:
        """A `send` that adds CORS headers, if the origin is allowed."""
        origin = headers.get("origin")
        if origin not in self.settings.allowed_origins:
            return send
        extra = [(b"access-control-allow-origin", str(origin).encode("latin-1")), (b"vary", b"origin")]
        return add_headers(send, [*extra, (b"access-control-expose-headers", b"x-session-id")])

    def _check_host(self, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if not self.any_host and _hostname(host) not in self.hosts:
            raise ServerError("FORBIDDEN", f"the host {host!r} is not this server; start it with --allow-host {host}")
        origin = headers.get("origin")
        if origin is None or origin in self.settings.allowed_origins:
            return
        if _netloc(origin) != host.lower():
            raise ServerError("FORBIDDEN", f"the origin {origin!r} may not call this server; see --allow-origin")

    def _owner(self, path: str, headers: dict[str, str]) -> str:
        """A digest of the caller's token, which owns the sessions that the caller opens."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if is_public(path) or not (self.settings.tokens or (given and self.settings.admin_token)):
            return ANONYMOUS
        if not given:
            usage = "send the header 'Authorization: Bearer TOKEN', or use Client(url, token=…)"
            raise ServerError("UNAUTHORIZED", f"this server needs a token: {usage}")
        known = [
            token for token in self.settings.accepted_tokens if hmac.compare_digest(token.encode(), given.encode())
        ]
        if kind.lower() != "bearer" or not known:
            raise ServerError("UNAUTHORIZED", "the token is not valid on this server")
        return owner_of(known[0])


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _hostname(host: str) -> str:
    """The host without its port."""
    return (host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host).lower()
