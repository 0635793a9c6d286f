"""A served echo driven by OpenEnv's own clients, compared with OpenEnv's server: only the URL changes."""

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import RESULTS, Contender, progress, row
from benchmarks.peers import ROOT, python_of
from benchmarks.served import Server, both_servers, make_result, store
from benchmarks.table import rows_as_text

CLIENTS = {"async": "openenv, its asynchronous client", "sync": "openenv, its synchronous client"}
SIZES = {"async": (1, 16, 64), "sync": (1,)}

CLIENT = Comparison(
    name="served_client",
    title="Steps per second of a served echo with OpenEnv's own client, by number of open sessions",
    case="served",
    sizes=SIZES["async"],
    rivals=tuple(Rival(label, "openenv", kind, dict.fromkeys(SIZES[kind], 2)) for kind, label in CLIENTS.items()),
)


@contextmanager
def clients(server: Server, kind: str, count: int) -> Iterator[Any]:
    """A process with `count` clients, each with a running episode."""
    script = ROOT / "benchmarks" / "workers" / "openenv_load.py"
    url = f"http://127.0.0.1:{server.port}{server.path.removesuffix('/ws')}"
    command = [python_of("openenv"), str(script), url, kind, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield child


def rate(child: Any, seconds: float) -> float:
    child.stdin.write(f"{seconds}\n")
    child.stdin.flush()
    steps, elapsed = map(float, child.stdout.readline().split())
    return steps / elapsed


def measure(kind: str, size: int, repeats: int, seconds: float) -> list[list[float]]:
    rates_by_server: list[list[float]] = [[], []]
    with both_servers() as servers, ExitStack() as stack:
        loads = [stack.enter_context(clients(server, kind, size)) for server in servers]
        for repeat in range(repeats + 1):  # the first is warm-up
            progress(f"served_client {kind} {size:,}: repeat {repeat} of {repeats}")
            for rates, load in zip(rates_by_server, loads, strict=True):
                value = rate(load, seconds)
                if repeat:
                    rates.append(value)
    return rates_by_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for rival in CLIENT.rivals:
        for size in SIZES[rival.case]:
            ours, theirs = measure(rival.case, size, args.repeats, args.seconds)
            peer = Contender(rival.label, None, {}, rival)  # pyright: ignore[reportArgumentType]
            rows.append(row(CLIENT, size, peer, ours, theirs))
    result = make_result(CLIENT, rows, args.repeats)
    store(result, args.results)
    print(rows_as_text(result))


if __name__ == "__main__":
    main()
