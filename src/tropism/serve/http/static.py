"""The page's files, as they are in the package."""

from functools import cache
from importlib.resources import files

from tropism.errors import ServerError
from tropism.serve.http.api import Answer

HOME = "index.html"
TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
# The page runs nothing but its own files, and asks nobody but this server.
POLICY = b"default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PRIVATE = [(b"referrer-policy", b"no-referrer")]


@cache
def page() -> dict[str, tuple[bytes, bytes]]:
    """Media type and content of each file, by name."""
    kept: dict[str, tuple[bytes, bytes]] = {}
    for file in files("tropism.serve").joinpath("page").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if suffix in TYPES:
            kept[file.name] = TYPES[suffix], file.read_bytes()
    return kept


def answer(name: str) -> Answer:
    if name not in page():
        raise ServerError("NOT_FOUND", f"the page has no file {name!r}")
    media_type, body = page()[name]
    return Answer(body, media_type=media_type, policy=POLICY, headers=list(PRIVATE))
