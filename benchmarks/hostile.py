"""How long a hostile frame of 1 MB blocks the event loop: `python -m benchmarks.hostile`. Fails above 50 ms.

CPU time of decoding the frame and making its reply, the best of several runs.
"""

import asyncio
import sys
import time
from collections.abc import Callable

from tropism.serve.app import App
from tropism.serve.server import load_environments
from tropism.serve.websocket.connection import Connection

SIZE, RUNS, LIMIT = 2**20, 5, 50.0  # bytes, repeats, milliseconds
SURROGATE = "\\ud800"

FRAMES: dict[str, Callable[[int], str]] = {
    "one string": lambda size: '{"type":"step","data":{"message":"' + "x" * size + '"}}',
    "escapes": lambda size: '{"type":"step","data":{"message":"' + "\\n" * (size // 2) + '"}}',
    "lone surrogates": lambda size: '{"type":"step","data":{"message":"' + SURROGATE * (size // 6) + '"}}',
    "unfinished string": lambda size: '{"type":"step","data":{"message":"' + '\\"' * (size // 2),
    "deep nesting": lambda size: "[" * size,
    "wide arrays": lambda size: '{"type":"step","data":{"x":[' + "[]," * (size // 3) + "[]]}}",
    "brackets in a string": lambda size: '{"type":"step","data":{"message":"' + "[{" * (size // 2) + '"}}',
    "objects": lambda size: '{"type":"step","data":{"x":[' + '{"a":1},' * (size // 8) + "1]}}",
    "keys": lambda size: '{"type":"step","data":{' + ",".join(f'"{n}":0' for n in range(size // 10)) + "}}",
    "numbers": lambda size: '{"type":"step","data":{"x":[' + "1," * (size // 2) + "1]}}",
    "floats": lambda size: '{"type":"step","data":{"x":[' + "1.5e300," * (size // 8) + "1]}}",
    "one long number": lambda size: '{"type":"step","data":{"x":' + "1" * size + "}}",
    "wrong type": lambda size: '{"type":3,"data":{"message":"' + "x" * size + '"}}',
    "unknown field": lambda size: '{"type":"step","no":"' + "x" * size + '"}',
    "unknown type": lambda size: '{"type":"' + "x" * size + '"}',
    "spaces": lambda size: '{"type":"step"' + " " * size + "}",
}


async def milliseconds(connection: Connection, frame: str) -> float:
    best = float("inf")
    for _ in range(RUNS):
        connection._decoded = None  # pyright: ignore[reportPrivateUsage]
        start = time.process_time()
        await connection._respond(frame)  # pyright: ignore[reportPrivateUsage]
        best = min(best, (time.process_time() - start) * 1000)
    return best


async def main() -> int:
    app = App(load_environments(["Echo-v0"]))
    connection = Connection(app.sessions, app.default, "anybody", app.metrics)
    await connection._respond('{"type":"reset"}')  # pyright: ignore[reportPrivateUsage]
    slowest = 0.0
    for name, make in FRAMES.items():
        time_taken = await milliseconds(connection, make(SIZE - 100))
        slowest = max(slowest, time_taken)
        print(f"{name:24} {time_taken:7.1f} ms", flush=True)
    print(f"{'slowest':24} {slowest:7.1f} ms of at most {LIMIT} ms")
    await app.sessions.stop()
    return int(slowest > LIMIT)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
