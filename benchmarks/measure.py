"""Running a comparison: workers side by side, repeats interleaved, medians of ratios."""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import Comparison, Rival
from benchmarks.peers import ROOT, UnavailableError
from benchmarks.process import Worker
from benchmarks.table import rows_as_text

RESULTS = ROOT / "benchmarks" / "results"

OURS = "tropism"


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    repeats: int = 9
    seconds: float = 0.5


@dataclass(frozen=True)
class Prepared:
    """A worker with its environments made and its code compiled for one size."""

    label: str
    worker: Worker
    facts: dict[str, Any]
    rival: Rival | None = None


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def prepared(worker: Worker, comparison: Comparison, case: str, size: int, effort: Effort) -> dict[str, Any]:
    """What a worker says of itself when it is ready to run."""
    request = {"case": case, "num_envs": size, "seconds": effort.seconds, "consumed": comparison.consumed}
    return worker.ask(do="prepare", **request)


def prepared_rivals(
    comparison: Comparison,
    rivals: Sequence[Rival],
    size: int,
    effort: Effort,
    stack: ExitStack,
    skipped: dict[str, str],
) -> list[Prepared]:
    """Every rival that can be had here; the others go into `skipped` with the reason."""
    ready: list[Prepared] = []
    for rival in rivals:
        progress(f"{comparison.name} {size:,}: preparing {rival.label}")
        try:
            worker = stack.enter_context(Worker(rival.peer, comparison))
            facts = prepared(worker, comparison, rival.case, size, effort)
        except UnavailableError as error:
            skipped[rival.label] = str(error)
            progress(f"skipped {rival.label}: {error}")
            continue
        ready.append(Prepared(rival.label, worker, facts, rival))
    return ready


def interleaved(comparison: Comparison, size: int, contenders: list[Prepared], repeats: int) -> dict[str, list[float]]:
    """One quantity per contender and repeat; the order turns round every time, so that none is always first."""
    taken: dict[str, list[float]] = {contender.label: [] for contender in contenders}
    for repeat in range(repeats):
        progress(f"{comparison.name} {size:,}: repeat {repeat + 1} of {repeats}")
        for contender in contenders if repeat % 2 == 0 else contenders[::-1]:
            answer = contender.worker.ask(do="run")
            taken[contender.label].append(comparison.quantity(answer["steps"], answer["seconds"]))
    return taken


def row(comparison: Comparison, size: int, rival: Prepared, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    assert rival.rival is not None
    ratios = [mine / its for mine, its in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ratios)
    target = rival.rival.targets.get(size)
    return {
        "num_envs": size,
        "rival": rival.label,
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "ratio": ratio,
        "ratios": ratios,
        "target": target,
        "met": None if target is None else comparison.met(ratio, target),
    }


def measured_size(
    comparison: Comparison, rivals: Sequence[Rival], size: int, effort: Effort, result: dict[str, Any]
) -> None:
    """Add the rows of one size to `result`."""
    with ExitStack() as stack:
        ours = stack.enter_context(Worker(OURS, comparison))
        progress(f"{comparison.name} {size:,}: preparing {OURS}")
        facts = prepared(ours, comparison, comparison.case, size, effort)
        usable = [rival for rival in rivals if rival.label not in result["skipped"]]
        ready = prepared_rivals(comparison, usable, size, effort, stack, result["skipped"])
        contenders = [Prepared(OURS, ours, facts), *ready]
        taken = interleaved(comparison, size, contenders, effort.repeats)
        result["rows"] += [row(comparison, size, rival, taken[OURS], taken[rival.label]) for rival in ready]
        for contender in contenders:
            result["versions"] |= contender.facts["versions"]
        result["machine"]["device"] = facts["device"]


def compare(comparison: Comparison, rivals: Sequence[Rival], sizes: Sequence[int], effort: Effort) -> dict[str, Any]:
    """The whole comparison, as it is stored."""
    cores = os.cpu_count()
    result: dict[str, Any] = {
        "name": comparison.name,
        "title": comparison.title,
        "unit": comparison.unit,
        "repeats": effort.repeats,
        "machine": {"processor": processor(), "cores": cores, "system": platform.system()},
        "versions": {"python": platform.python_version()},
        "rows": [],
        "skipped": {},
    }
    for size in sizes:
        measured_size(comparison, rivals, size, effort, result)
    return result


def main(comparison: Comparison) -> None:
    """The command line of one comparison."""
    parser = argparse.ArgumentParser(description=comparison.title)
    labels = [rival.label for rival in comparison.rivals]
    parser.add_argument("--sizes", type=int, nargs="+", default=comparison.sizes, metavar="N")
    parser.add_argument("--rivals", nargs="+", default=labels, choices=labels)
    parser.add_argument("--repeats", type=int, default=Effort.repeats)
    parser.add_argument("--seconds", type=float, default=Effort.seconds, help="how long one repeat should take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    args = parser.parse_args()
    rivals = [rival for rival in comparison.rivals if rival.label in args.rivals]
    result = compare(comparison, rivals, args.sizes, Effort(args.repeats, args.seconds))
    args.results.mkdir(parents=True, exist_ok=True)
    path: Path = args.results / f"{comparison.name}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(rows_as_text(result))
