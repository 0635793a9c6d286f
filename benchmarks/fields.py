"""Plumes simulated on one core, each with its own wind and puffs, compared with pompy and a plain NumPy loop.

An update is 0.01 s of one plume. Our plumes are stepped together by `vmap`, the others one after another.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

# One core for this process and its child processes. JAX counts cores when it is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
from jax import random

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import RESULTS, Contender, Effort, prepare, processor, progress, row
from benchmarks.peers import REQUIREMENTS
from benchmarks.process import Worker
from benchmarks.table import rows_as_text
from benchmarks.worker import Run, calibrate, check_mean, package_version, time_run
from tropism.plume.fields import Field, Filaments, Puffs

# pompy 0.1.1 converts one-element arrays to numbers, which later NumPy versions reject.
REQUIREMENTS["pompy"] = ("pompy==0.1.1", "numpy==1.26.4", "scipy==1.13.1")

NUM_FILAMENTS, NUM_PUFFS = 500, 2000
FAR = 1e3  # m, farther than any puff

FIELDS = Comparison(
    name="fields",
    title="Updates per second of independent plumes, one core",
    case="fields",
    sizes=(1, 32),
    rivals=(
        Rival(f"pompy, {NUM_FILAMENTS} puffs", "pompy", "filaments", {32: 100}),
        Rival(f"Singh's update in NumPy, {NUM_PUFFS} puffs", "pompy", "puffs", {}),
    ),
)


def filaments() -> tuple[Field, Callable[[Any], Any]]:
    # Only the newest puffs are kept; at 20 releases per second these are still in the arena.
    # In the plane, as the rival is configured.
    options: Any = {"vertical": False, "dt": 0.01, "warmup": 0, "max_puffs": NUM_FILAMENTS, "max_births": 8}
    field = Filaments((20.0, 0.0), rate=20.0, **options)

    def start(key: Any) -> Any:
        x, y = (jnp.full(NUM_FILAMENTS, value) for value in field.source)
        state = field.init(key)
        return type(state)(state.air, x, y, state.z, jnp.full(NUM_FILAMENTS, 0.001), state.oldest)

    return field, start


def puffs() -> tuple[Field, Callable[[Any], Any]]:
    field = Puffs(substeps=1, max_puffs=NUM_PUFFS, max_births=16)
    return field, field.init


CASES = {"filaments": filaments, "puffs": puffs}


def our_run(case: str, num_plumes: int) -> Run:
    field, start = CASES[case]()

    def share_alive(state: Any) -> Any:
        sizes = state.squared if case == "filaments" else state.radius
        # Positions are included because the compiler removes values that are not used.
        return jnp.mean((sizes > 0) & (jnp.abs(state.x) + jnp.abs(state.y) < FAR), dtype=float)

    def one(key: Any, num_steps: int) -> Any:
        start_key, steps_key = random.split(key)

        def update(index: Any, carry: Any) -> Any:
            state, total = carry
            state = field.advance(random.fold_in(steps_key, index), state)
            return state, total + share_alive(state)

        return jax.lax.fori_loop(0, num_steps, update, (start(start_key), jnp.zeros(())))[1]

    @partial(jax.jit, static_argnums=1)
    def plumes(key: Any, num_steps: int) -> Any:
        return jax.vmap(lambda plume_key: one(plume_key, num_steps))(random.split(key, num_plumes)).sum()

    return lambda num_steps, seed: float(plumes(random.key(seed), num_steps))


def measure_row(rival: Rival, size: int, effort: Effort) -> tuple[dict[str, Any], dict[str, str]]:
    """The row of one rival at one size, and the versions of its packages."""
    progress(f"{FIELDS.name} {size:,}: {rival.label}")
    with ExitStack() as stack:
        worker = stack.enter_context(Worker(rival.peer, FIELDS))
        facts = prepare(worker, FIELDS, rival.case, size, effort)
        run = our_run(rival.case, size)
        num_steps = calibrate(run, effort.seconds)
        mine: list[float] = []
        theirs: list[float] = []
        for repeat in range(effort.repeats):
            seconds, total = time_run(run, num_steps, repeat + 2)
            check_mean(total, size * num_steps, *FIELDS.mean_range)
            mine.append(size * num_steps / seconds)
            reply = worker.exchange(do="run")
            theirs.append(reply["steps"] / reply["seconds"])
        return row(FIELDS, size, Contender(rival.label, worker, facts, rival), mine, theirs), facts["versions"]


def main() -> None:
    parser = argparse.ArgumentParser(description=FIELDS.title)
    parser.add_argument("--sizes", type=int, nargs="+", default=FIELDS.sizes, metavar="N")
    parser.add_argument("--repeats", type=int, default=Effort.repeats)
    parser.add_argument("--seconds", type=float, default=Effort.seconds, help="how long one repeat should take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "name": FIELDS.name,
        "title": FIELDS.title,
        "unit": FIELDS.unit,
        "repeats": args.repeats,
        "machine": {"processor": processor(), "cores": 1, "system": platform.system(), "device": "cpu"},
        "versions": {
            "python": platform.python_version(),
            **{name: package_version(name) for name in ("tropism", "jax")},
        },
        "rows": [],
        "skipped": {},
    }
    for rival in FIELDS.rivals:
        for size in args.sizes:
            table_row, versions = measure_row(rival, size, Effort(args.repeats, args.seconds))
            result["rows"].append(table_row)
            result["versions"] |= versions
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{FIELDS.name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(rows_as_text(result))


if __name__ == "__main__":
    main()
