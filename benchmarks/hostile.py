"""How long a hostile frame of 1 MB blocks the event loop: `python -m benchmarks.hostile`. Fails above 50 ms.

The longest time in which the event loop runs nothing else, the best of several runs; with an environment that refuses
the frame and with one that accepts any action.
"""

import argparse
import asyncio
import gc
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.measure import RESULTS, processor
from benchmarks.served import store
from benchmarks.served_figures import row
from tropism.core.adapters.class_based import AgentEnvironment, adapt
from tropism.serve.app import App
from tropism.serve.server import load_environments
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.websocket.connection import Connection
from tropism.wire.messages import Action, Observation

SIZE, RUNS, LIMIT = 2**20 - 100, 5, 50.0  # bytes, repeats, milliseconds
SURROGATE = "\\ud800"


@dataclass(frozen=True, kw_only=True)
class Anything(Action):
    x: Any = None
    message: str = ""


class Accepting(AgentEnvironment):
    """Accepts every action, on the event loop."""

    deterministic: ClassVar[bool] = True
    blocking = False

    def reset(self) -> Observation:
        return Observation()

    def step(self, action: Anything) -> Observation:  # noqa: ARG002 - its type declares the action
        return Observation()


def text(content: str) -> str:
    return '{"type":"step","data":{"message":"' + content + '"}}'


def array(item: str, end: str = "1") -> str:
    """A step whose action is an array of so many items as fit."""
    return '{"type":"step","data":{"x":[' + f"{item}," * (SIZE // (len(item) + 1)) + end + "]}}"


def packed(item: bytes, values: int = 1) -> bytes:
    """A binary frame with an array of so many items as fit, each of so many values."""
    count = SIZE // len(item)
    return b"\x82\xa4type\xaastep_batch\xa4data\x81\xa7actions\xdd" + (count * values).to_bytes(4, "big") + item * count


FRAMES: dict[str, Callable[[], str | bytes]] = {
    "one string": lambda: text("x" * SIZE),
    "escapes": lambda: text("\\n" * (SIZE // 2)),
    "lone surrogates": lambda: text(SURROGATE * (SIZE // 6)),
    "unfinished string": lambda: text('\\"' * (SIZE // 2))[:-3],
    "brackets in a string": lambda: text("[{" * (SIZE // 2)),
    "deep nesting": lambda: "[" * SIZE,
    "arrays": lambda: array("[]"),
    "nested arrays": lambda: array("[" * 32 + "]" * 32),
    "as many arrays as allowed": lambda: array("[1.5,2]"),
    "brackets in strings": lambda: array('"["'),
    "objects": lambda: array('{"a":"b"}'),
    "pixels": lambda: array("[200,100,50]"),
    "keys": lambda: '{"type":"step","data":{' + ",".join(f'"{n}":0' for n in range(SIZE // 10)) + "}}",
    "strings": lambda: array('"a"'),
    "numbers": lambda: array("1"),
    "floats": lambda: array("1.5"),
    "large floats": lambda: array("1.5e300"),
    "small floats": lambda: array("1.5e-324"),
    "halfway floats": lambda: array("1e23"),
    "floats and a surrogate": lambda: array("2.5e98", f'"{SURROGATE}"'),
    "one long number": lambda: '{"type":"step","data":{"x":' + "1" * SIZE + "}}",
    "wrong type": lambda: '{"type":3,"data":{"message":"' + "x" * SIZE + '"}}',
    "unknown field": lambda: '{"type":"step","no":"' + "x" * SIZE + '"}',
    "unknown type": lambda: '{"type":"' + "x" * SIZE + '"}',
    "spaces": lambda: '{"type":"step"' + " " * SIZE + "}",
    "binary arrays": lambda: packed(b"\x90"),
    "binary nested arrays": lambda: packed(b"\x91" * 19 + b"\x01"),
    "as many binary arrays as allowed": lambda: packed(b"\x90" + b"\x01" * 8, 9),
    "binary bytes": lambda: packed(b"\xc6\x00\x0f\x00\x00" + b"\x90" * 0xF0000),
}


async def milliseconds(connection: Connection, frame: str | bytes) -> float:
    return min([await longest_pause(connection, frame) for _ in range(RUNS)])


async def longest_pause(connection: Connection, frame: str | bytes) -> float:
    """The longest time, in milliseconds, in which the event loop ran nothing else.

    In CPU time of this process, so that a busy machine does not matter.
    """
    connection._decoded = None  # pyright: ignore[reportPrivateUsage]
    respond = connection._respond_binary if isinstance(frame, bytes) else connection._respond  # pyright: ignore[reportPrivateUsage]
    reply = asyncio.ensure_future(respond(frame))  # pyright: ignore[reportArgumentType]
    longest, before = 0.0, time.process_time()
    while not reply.done():
        await asyncio.sleep(0)
        longest, before = max(longest, time.process_time() - before), time.process_time()
    return 1000 * longest


def accepting() -> ServedEnvironment:
    env = adapt(Accepting)
    return ServedEnvironment("Accepting", env, env.default_params(), "Accepts every action.")


async def measure() -> dict[str, float]:
    """Milliseconds of each frame, in the slower of the two environments."""
    app = App(load_environments(["Echo-v0"]) | {"Accepting": accepting()})
    connections = [
        Connection(app.sessions, environment, "anybody", app.metrics)
        for environment in app.sessions.environments.values()
    ]
    for connection in connections:
        await connection._respond('{"type":"reset"}')  # pyright: ignore[reportPrivateUsage]
    gc.collect()
    gc.freeze()  # as the server does
    times = dict[str, float]()
    for name, make in FRAMES.items():
        times[name] = max([await milliseconds(connection, make()) for connection in connections])
        print(f"{name:34} {times[name]:7.1f} ms", flush=True)
    await app.sessions.stop()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    times = asyncio.run(measure())
    what = f"the slowest of {len(times)} hostile frames of 1 MB ({max(times, key=lambda name: times[name])})"
    figure = row(what, "ms", [max(times.values())], LIMIT)
    result = {
        "name": "hostile",
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"},
        "versions": {"python": platform.python_version(), "tropism": version("tropism"), "msgspec": version("msgspec")},
        "figures": [figure],
    }
    store(result, args.results)
    return int(not figure["met"])


if __name__ == "__main__":
    sys.exit(main())
