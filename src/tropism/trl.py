"""A served environment as the class that TRL's `environment_factory` takes; imports neither JAX nor TRL."""

import inspect
from collections.abc import Callable
from typing import Any

from tropism.client import Client
from tropism.errors import ServerError
from tropism.wire.schemas import python_type

COLUMNS = ("seed", "options")  # columns of a row that a reset uses


def environment(id: str, url: str, *, token: str | None = None) -> type:
    """A class whose instances each play one session of the environment `id` on the server at `url`.

    Its methods are one typed, documented tool, `reset(**row)`, which uses the columns `seed` and `options` of a row and
    ignores all others, and `get_reward`, the return of the episode.
    """
    address = f"{url.rstrip('/')}/envs/{id}"
    with Client(address, token=token) as client:
        (tool,) = client.tools()

    class SessionPlayer:
        """One session of a served environment."""

        def __init__(self) -> None:
            self._client = Client(address, token=token)
            self._return = 0.0

        def reset(self, **row: Any) -> str:
            """Begin an episode; returns its first observation as text."""
            self._return = 0.0
            return self._client.reset(**{name: row[name] for name in COLUMNS if row.get(name) is not None}).text

        def get_reward(self) -> float:
            """The sum of the rewards since the last reset."""
            return self._return

        def _act(self, action: dict[str, Any]) -> str:
            result = self._client.step(action)
            self._return += result.reward or 0.0
            if result.error is not None:
                raise ValueError(result.error)
            return f"{result.text}\nThe episode is over." if result.done else result.text

    SessionPlayer.__name__ = SessionPlayer.__qualname__ = id.rpartition("-")[0] or id
    setattr(SessionPlayer, tool["name"], _method(tool))
    return SessionPlayer


def _method(tool: dict[str, Any]) -> Callable[..., str]:
    """A method with the tool's arguments as its signature, and a docstring that describes them."""
    schema = tool["inputSchema"]
    names, required = list(schema["properties"]), schema.get("required", [])
    if not names:
        raise ServerError("VALIDATION_ERROR", f"the tool {tool['name']} takes no arguments")

    def call(self: Any, *values: Any, **arguments: Any) -> str:
        given = dict(zip(names, values, strict=False)) | arguments
        action = given["action"] if names == ["action"] else {k: v for k, v in given.items() if v is not None}
        return self._act(action)

    kinds = {name: python_type(schema["properties"][name]) for name in names}
    empty, keyword = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(name, keyword, default=empty if name in required else None, annotation=kinds[name])
        for name in sorted(names, key=lambda name: name not in required)
    ]
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    lines = [f"    {name}: {schema['properties'][name].get('description', name)}" for name in names]
    call.__signature__ = inspect.Signature([receiver, *parameters], return_annotation=str)  # pyright: ignore
    call.__annotations__ = kinds | {"return": str}
    call.__name__ = call.__qualname__ = tool["name"]
    call.__doc__ = "\n".join([tool["description"], "", "Args:", *lines, "", "Returns:", "    The observation."])
    return call
