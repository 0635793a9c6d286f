"""Run a comparison: one worker process per library, interleaved repeats, medians of ratios."""

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
    """The number of repeats and the duration of each."""

    repeats: int = 9
    seconds: float = 0.5


@dataclass(frozen=True)
class Contender:
    """A worker with its environments created and its code compiled for one size."""

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


def prepare(worker: Worker, comparison: Comparison, case: str, size: int, effort: Effort) -> dict[str, Any]:
    """Prepare a worker for one size; return its step count, package versions and device."""
    request = {"case": case, "num_envs": size, "seconds": effort.seconds, "mean_range": comparison.mean_range}
    return worker.exchange(do="prepare", **request)


def prepare_rivals(
    comparison: Comparison,
    rivals: Sequence[Rival],
    size: int,
    effort: Effort,
    stack: ExitStack,
    skipped: dict[str, str],
) -> list[Contender]:
    """Prepare every available rival; add the others to `skipped` with the reason."""
    ready: list[Contender] = []
    for rival in rivals:
        progress(f"{comparison.name} {size:,}: preparing {rival.label}")
        try:
            worker = stack.enter_context(Worker(rival.peer, comparison))
            facts = prepare(worker, comparison, rival.case, size, effort)
        except UnavailableError as error:
            skipped[rival.label] = str(error)
            progress(f"skipped {rival.label}: {error}")
            continue
        ready.append(Contender(rival.label, worker, facts, rival))
    return ready


def run_interleaved(
    comparison: Comparison, size: int, contenders: list[Contender], repeats: int
) -> dict[str, list[float]]:
    """One value per contender and repeat; the order alternates so that none is always first."""
    quantities: dict[str, list[float]] = {contender.label: [] for contender in contenders}
    for repeat in range(repeats):
        progress(f"{comparison.name} {size:,}: repeat {repeat + 1} of {repeats}")
        for contender in contenders if repeat % 2 == 0 else contenders[::-1]:
            reply = contender.worker.exchange(do="run")
            quantities[contender.label].append(comparison.quantity(reply["steps"], reply["seconds"]))
    return quantities


def row(comparison: Comparison, size: int, rival: Contender, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    assert rival.rival is not None
    ratios = [ours_value / theirs_value for ours_value, theirs_value in zip(ours, theirs, strict=True)]
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
        "met": None if target is None else comparison.meets(ratio, target),
    }


def measure_size(
    comparison: Comparison, rivals: Sequence[Rival], size: int, effort: Effort, result: dict[str, Any]
) -> None:
    """Add the rows of one size to `result`."""
    with ExitStack() as stack:
        ours = stack.enter_context(Worker(OURS, comparison))
        progress(f"{comparison.name} {size:,}: preparing {OURS}")
        facts = prepare(ours, comparison, comparison.case, size, effort)
        usable = [rival for rival in rivals if rival.label not in result["skipped"]]
        ready = prepare_rivals(comparison, usable, size, effort, stack, result["skipped"])
        contenders = [Contender(OURS, ours, facts), *ready]
        quantities = run_interleaved(comparison, size, contenders, effort.repeats)
        result["rows"] += [row(comparison, size, rival, quantities[OURS], quantities[rival.label]) for rival in ready]
        for contender in contenders:
            result["versions"] |= contender.facts["versions"]
        result["machine"]["device"] = facts["device"]


def compare(comparison: Comparison, rivals: Sequence[Rival], sizes: Sequence[int], effort: Effort) -> dict[str, Any]:
    """Run the comparison; return the result as stored in JSON."""
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
        measure_size(comparison, rivals, size, effort, result)
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
