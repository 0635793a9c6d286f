"""Write the table of routes in docs/serve.md from the server's route table. Run by `make docs`."""

import re
import sys
from pathlib import Path
from typing import Any

from tropism.serve.http.messages import Route
from tropism.serve.http.openapi import json_schema, request_schema
from tropism.serve.http.routes import ROUTES

PAGE = Path(__file__).parent / "serve.md"
PLACE = re.compile(r"(<!-- routes -->\n).*?(<!-- end -->)", re.DOTALL)
SPACES: dict[str, Any] = {"Action": {}, "Observation": {}}  # the fields of these depend on the environment


def table() -> str:
    rows = ["| request | fields | reply | |", "| --- | --- | --- | --- |", *map(_row, ROUTES)]
    return "\n".join(rows) + "\n"


def _row(route: Route) -> str:
    request = request_schema(route, SPACES)
    fields = [f"`{name}`" + ("" if name in request["required"] else "?") for name in request["properties"]]
    return f"| `{route.method} {route.path}` | {', '.join(fields)} | {_reply(route.reply)} | {route.summary} |"


def _reply(reply: Any) -> str:
    if isinstance(reply, tuple):
        return " or ".join(reply)
    schema = json_schema(reply, SPACES)
    names = ", ".join(f"`{name}`" for name in schema.get("items", schema).get("properties", {})) or "JSON"
    return f"a list of {names}" if schema["type"] == "array" else names


def main(page: Path) -> None:
    text = page.read_text()
    page.write_text(PLACE.sub(lambda place: place[1] + table() + place[2], text))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE)
