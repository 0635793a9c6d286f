"""The page's static files."""

import html
from functools import cache
from importlib.resources import files

from tropism.errors import ServerError
from tropism.serve.http.messages import Response

INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The page runs only its own scripts, and sends requests only to this server.
PAGE_CSP = b"default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
NO_REFERRER = [(b"referrer-policy", b"no-referrer")]


@cache
def page_files() -> dict[str, tuple[str, bytes]]:
    """Media type and content of each file, by name."""
    found: dict[str, tuple[str, bytes]] = {}
    for file in files("tropism.serve").joinpath("page").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in TYPES:
            found[file.name] = TYPES[suffix], file.read_bytes()
    return found


def file_response(name: str, root_path: str = "") -> Response:
    """A file of the page; links in HTML begin with the root path."""
    if name not in page_files():
        raise ServerError("NOT_FOUND", f"the page has no file {name!r}")
    media_type, body = page_files()[name]
    if name == INDEX and root_path:
        root = html.escape(root_path).encode()
        body = body.replace(b'="/', b'="' + root + b"/").replace(b'data-root=""', b'data-root="' + root + b'"')
    return Response(body, media_type=media_type, policy=PAGE_CSP, headers=list(NO_REFERRER))
