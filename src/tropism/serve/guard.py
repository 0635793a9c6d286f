"""The door: who may come in, from where. Everything behind it may trust `scope["owner"]`."""

import hmac
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tropism.errors import ServerError
from tropism.serve import refusal
from tropism.serve.settings import LOOPBACK, Settings
from tropism.wire.codec import encode

PUBLIC = ("/health",)
ANYBODY = "anybody"  # the owner of sessions on a server without tokens


class Guard:
    """ASGI: checks Host, Origin and token of every request, on HTTP and on sockets."""

    def __init__(self, app: Any, settings: Settings):
        self.app = app
        self.settings = settings
        self.hosts = {host.lower() for host in (*LOOPBACK, "[::1]", settings.host, *settings.allowed_hosts)}
        # Behind a token any name will do: a page that was tricked into calling us does not know the token.
        self.any_host = bool(settings.tokens) and not settings.allowed_hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._check_host(headers)
            scope["owner"] = ANYBODY if scope["path"].endswith(PUBLIC) else self._owner(headers)
            scope["query"] = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            scope["named"] = headers
        except ServerError as reason:
            await refuse(scope, send, reason)
            return
        await self.app(scope, receive, send)

    def _check_host(self, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if not self.any_host and _name(host) not in self.hosts:
            raise ServerError("FORBIDDEN", f"the host {host!r} is not this server; start it with --allow-host {host}")
        origin = headers.get("origin")
        if origin is None or origin in self.settings.allowed_origins:
            return
        if _netloc(origin) != host.lower():
            raise ServerError("FORBIDDEN", f"the origin {origin!r} may not call this server; see --allow-origin")

    def _owner(self, headers: dict[str, str]) -> str:
        """The token that the caller knows; it is also who owns the sessions it opens."""
        if not self.settings.tokens:
            return ANYBODY
        kind, _, given = headers.get("authorization", "").partition(" ")
        known = [token for token in self.settings.tokens if hmac.compare_digest(token.encode(), given.encode())]
        if kind.lower() != "bearer" or not known:
            raise ServerError(
                "UNAUTHORIZED", "send the header 'Authorization: Bearer TOKEN' with a token of this server"
            )
        return known[0]


async def refuse(scope: Any, send: Any, reason: ServerError) -> None:
    """Answer an HTTP request, or a socket before it is accepted."""
    prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    body = encode(refusal.data(reason))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if reason.code == "UNAUTHORIZED":
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{prefix}.start", "status": refusal.STATUS[reason.code], "headers": headers})
    await send({"type": f"{prefix}.body", "body": body})


def cookie(headers: dict[str, str], name: str) -> str | None:
    """The first of this name: the one with the longest path, so the nearest."""
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for key, _, value in pairs if key == name), None)


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name(host: str) -> str:
    """The host without its port."""
    return (host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host).lower()
