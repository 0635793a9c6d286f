"""The served echo driven by OpenEnv's own clients, against OpenEnv's server: what a user sees who changes the URL."""

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import RESULTS, Prepared, progress, row
from benchmarks.peers import ROOT, python_of
from benchmarks.served import Server, both, store, stored
from benchmarks.table import rows_as_text

MANNERS = {"async": "openenv, its asynchronous client", "sync": "openenv, its synchronous client"}
SIZES = {"async": (1, 16, 64), "sync": (1,)}

CLIENT = Comparison(
    name="served_client",
    title="Steps a second of a served echo with OpenEnv's own client, by sessions open at once",
    case="served",
    sizes=SIZES["async"],
    rivals=tuple(Rival(label, "openenv", manner, dict.fromkeys(SIZES[manner], 2)) for manner, label in MANNERS.items()),
)


@contextmanager
def clients(server: Server, manner: str, count: int) -> Iterator[Any]:
    """A process with that many of them, each with an episode begun."""
    script = ROOT / "benchmarks" / "workers" / "openenv_load.py"
    url = f"http://127.0.0.1:{server.port}{server.path.removesuffix('/ws')}"
    command = [python_of("openenv"), str(script), url, manner, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield child


def rate(child: Any, seconds: float) -> float:
    child.stdin.write(f"{seconds}\n")
    child.stdin.flush()
    steps, took = map(float, child.stdout.readline().split())
    return steps / took


def measured(manner: str, size: int, repeats: int, seconds: float) -> list[list[float]]:
    taken: list[list[float]] = [[], []]
    with both() as servers, ExitStack() as stack:
        loads = [stack.enter_context(clients(server, manner, size)) for server in servers]
        for repeat in range(repeats + 1):  # the first is warm-up
            progress(f"served_client {manner} {size:,}: repeat {repeat} of {repeats}")
            for rates, load in zip(taken, loads, strict=True):
                found = rate(load, seconds)
                if repeat:
                    rates.append(found)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for rival in CLIENT.rivals:
        for size in SIZES[rival.case]:
            ours, theirs = measured(rival.case, size, args.repeats, args.seconds)
            peer = Prepared(rival.label, None, {}, rival)  # pyright: ignore[reportArgumentType]
            rows.append(row(CLIENT, size, peer, ours, theirs))
    result = stored(CLIENT, rows, args.repeats)
    store(result, args.results)
    print(rows_as_text(result))


if __name__ == "__main__":
    main()
