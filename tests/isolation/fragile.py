"""A host environment that crashes on demand, in every way a process can end."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tropism import ValidationError
from tropism.core.adapters.language import Language
from tropism.core.environment import Environment, Info, outcome
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Discrete, Space

STAY, SEGFAULT, EXIT, KILLED, QUIT, RAISE, REFUSE, ODD, UNSENDABLE, HANG, END, ORPHAN = range(12)
CODE = 7
ORPHANED = 5.0  # seconds that a subprocess of the environment keeps running
SECRET = "the password is swordfish"


class OddError(Exception):
    """Cannot be unpickled: its arguments are not those of its constructor."""

    def __init__(self, one: str, two: str):
        super().__init__(f"{one} {two}")


class FragileParams(EnvParams):
    gain: float = 1.0


@dataclass(frozen=True)
class Place:
    start: int
    pid: int
    steps: int = 0
    total: float = 0.0


CRASH_NAMES = ("segfault", "exit", "killed", "quit", "raise", "refuse", "odd", "unsendable", "hang")


class Fragile(Environment):
    """Sums random numbers drawn from its keys; `leave` is a folder where `close` writes a file."""

    host: ClassVar[Host | None] = Host()
    language = Language(
        actions=("stay", *CRASH_NAMES, "end", "orphan"), observations=("start", "steps", "total"), clicks=((STAY, END),)
    )

    leave: str = ""

    def default_params(self) -> FragileParams:
        return FragileParams()

    def reset(self, key: Any, params: Any) -> tuple[Any, Place]:
        state = Place(key % 1000, os.getpid())
        return self.observation(state), state

    def step(self, key: Any, state: Place, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        done, info = outcome(int(action) == END, False, {"note": f"step {state.steps}"})
        crash(int(action))
        total = state.total + params.gain * np.random.default_rng(key).random()
        state = Place(state.start, state.pid, state.steps + 1, total)
        obs: Any = threading.Lock() if action == UNSENDABLE else self.observation(state)
        return obs, state, total, done, info

    def observation(self, state: Place) -> Any:
        return np.array([state.start, state.steps, state.total])

    def observation_space(self, params: Any) -> Space:
        return Box(0.0, 1e6, (3,))

    def action_space(self, params: Any) -> Space:
        return Discrete(12)

    def info(self, state: Place, params: Any) -> Info:
        return {"steps": state.steps, "gain": params.gain}

    def render(self, state: Place, params: Any) -> Any:
        return np.full((4, 5, 3), state.steps, np.uint8)

    def agent_position_in_image(self, state: Place, params: Any) -> tuple[float, float]:
        return state.steps / 100, 0.5

    def describe(self, state: Place, obs: Any, params: Any) -> str:
        return f"after {state.steps} steps: {obs[2]:.6f}"

    def close(self, state: Place) -> None:
        if self.leave:
            (Path(self.leave) / str(state.pid)).write_text("closed")


class Unrepeatable(Fragile):
    """Declares that its episodes cannot be replayed."""

    host = Host(replayable=False)


class Forgetful(Fragile):
    """Declares itself replayable, but is not."""

    def reset(self, key: Any, params: Any) -> tuple[Any, Place]:
        obs, state = super().reset(key, params)
        return obs + state.pid, state


class Drawing(Fragile):
    """Draws from NumPy's global generator."""

    def reset(self, key: Any, params: Any) -> tuple[Any, Place]:
        obs, state = super().reset(key, params)
        return obs + np.random.random(), state  # noqa: NPY002


class Holding(Fragile):
    """Has a field that cannot be pickled."""

    def __init__(self):
        self.leave: Any = threading.Lock()


class Reluctant(Fragile):
    """Raises in `close`."""

    def close(self, state: Place) -> None:
        raise OSError("no")


def crash(action: int) -> None:
    match action:
        case 5:
            raise LookupError(SECRET)
        case 6:
            raise ValidationError("action", action, "another")
        case 7:
            raise OddError(SECRET, "and more")
        case _:
            CRASHES.get(action, lambda: None)()


def leave_an_orphan() -> None:
    if os.fork() == 0:
        time.sleep(ORPHANED)
    os._exit(CODE)


CRASHES: dict[int, Callable[[], Any]] = {
    SEGFAULT: lambda: ctypes.string_at(0),
    EXIT: lambda: os._exit(CODE),
    KILLED: lambda: os.kill(os.getpid(), signal.SIGKILL),
    QUIT: lambda: sys.exit(CODE),
    HANG: lambda: time.sleep(3600),
    ORPHAN: leave_an_orphan,
}
