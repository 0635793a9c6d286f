"""The door: who may come in, from where. Everything behind it may trust `scope["owner"]`."""

import hmac
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tropism.errors import ServerError
from tropism.serve import errors as refusal
from tropism.serve.settings import LOOPBACK, Settings
from tropism.wire.codec import encode

PUBLIC = ("/", "/docs", "/health")  # and the page's files: a browser asks for those before it can be given a token
SAFE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))  # on every reply
POLICY = b"content-security-policy"
UNFRAMED = (POLICY, b"frame-ancestors 'none'")  # on every reply that has no policy of its own
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
            if scope["type"] == "http" and scope["method"] == "OPTIONS" and "origin" in headers:
                await self._permit(headers, send)
                return
            scope["owner"] = ANYBODY if _is_public(scope["path"]) else self._owner(headers)
            scope["query"] = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            scope["named"] = headers
        except ServerError as reason:
            await refuse(scope, send, reason)
            return
        await self.app(scope, receive, self._readable(headers, send))

    async def _permit(self, headers: dict[str, str], send: Any) -> None:
        """Tell a browser, which asks before it lets a page call, what a page of this origin may send."""
        told = [*SAFE, UNFRAMED, (b"access-control-allow-methods", b"GET, POST"), (b"access-control-max-age", b"600")]
        told.append((b"access-control-allow-headers", b"authorization, content-type, x-session-id"))
        start = {"type": "http.response.start", "status": 204, "headers": told}
        await self._readable(headers, send)(start)
        await send({"type": "http.response.body", "body": b""})

    def _readable(self, headers: dict[str, str], send: Any) -> Any:
        """A `send` whose replies a page of an allowed origin may read."""
        origin = headers.get("origin")
        if origin not in self.settings.allowed_origins:
            return send
        extra = [(b"access-control-allow-origin", str(origin).encode("latin-1")), (b"vary", b"origin")]
        extra.append((b"access-control-expose-headers", b"x-session-id"))

        async def send_readable(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        return send_readable

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
        """A digest of the token that the caller knows: who owns the sessions it opens."""
        if not self.settings.tokens:
            return ANYBODY
        kind, _, given = headers.get("authorization", "").partition(" ")
        if not given:
            words = "this server needs a token: send the header 'Authorization: Bearer TOKEN', or Client(url, token=…)"
            raise ServerError("UNAUTHORIZED", words)
        known = [token for token in self.settings.tokens if hmac.compare_digest(token.encode(), given.encode())]
        if kind.lower() != "bearer" or not known:
            raise ServerError("UNAUTHORIZED", "the token is not one of this server's")
        return blake2b(known[0].encode(), digest_size=16).hexdigest()


def _is_public(path: str) -> bool:
    return path in PUBLIC or path.startswith("/page/")


async def refuse(scope: Any, send: Any, reason: ServerError) -> None:
    """Answer an HTTP request, or a socket before it is accepted."""
    prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    body = encode(refusal.data(reason))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *SAFE, UNFRAMED]
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
