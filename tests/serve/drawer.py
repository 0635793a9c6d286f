"""A host environment with files, without a sandbox."""

from dataclasses import dataclass, field, replace
from typing import Any

from tests.serve.lab import Count, Lab

from tropism.core.environment import Info
from tropism.errors import MissingFileError
from tropism.serve.session.environment import ServedEnvironment


@dataclass(frozen=True)
class Filled(Count):
    files: dict[str, bytes] = field(default_factory=dict)


class Drawer(Lab):
    """Its files are in its state."""

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        state = Filled(key % 1000)
        return self.observation(state), state

    def step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        _, count, reward, done, info = super().step(key, state, action, params)
        stepped = replace(state, steps=count.steps)
        return self.observation(stepped), stepped, reward, done, info

    def workspace(self, state: Any, params: Any) -> "DrawerFiles":
        return DrawerFiles(state)


class DrawerFiles:
    def __init__(self, state: Filled):
        self._state = state

    def sizes(self) -> dict[str, int]:
        return {path: len(data) for path, data in self._state.files.items()}

    def read(self, path: str) -> bytes:
        if path not in self._state.files:
            raise MissingFileError("path", path, "the path of a file")
        return self._state.files[path]

    def write(self, path: str, data: bytes) -> Filled:
        return replace(self._state, files={**self._state.files, path: data})


def drawer() -> dict[str, ServedEnvironment]:
    env = Drawer()
    return {"Drawer-v0": ServedEnvironment("Drawer-v0", env, env.default_params(), "A test's own.")}
