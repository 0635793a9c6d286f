"""Plumes simulated on one core, each with its own wind and puffs: ours beside pompy's and a plain NumPy loop.

An update is 0.01 s of one plume. Ours are stepped side by side by `vmap`, theirs one after the other.
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

# One core for ours and, in the processes started from here, for theirs. JAX counts cores when it is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
from jax import random

from benchmarks.comparison import Comparison, Rival
from benchmarks.measure import RESULTS, Effort, Prepared, prepared, processor, progress, row
from benchmarks.peers import REQUIREMENTS
from benchmarks.process import Worker
from benchmarks.table import rows_as_text
from benchmarks.worker import Run, calibrated, check_consumed, package_version, timed
from tropism.plume.fields import Field, Filaments, Puffs

# pompy 0.1.1 turns one-element arrays into numbers, which later NumPy refuses.
REQUIREMENTS["pompy"] = ("pompy==0.1.1", "numpy==1.26.4", "scipy==1.13.1")

NUM_FILAMENTS, NUM_PUFFS = 500, 2000
FAR = 1e3  # m, where no puff ever is

FIELDS = Comparison(
    name="fields",
    title="Updates of plumes a second, one core, each plume its own",
    case="fields",
    sizes=(1, 32),
    rivals=(
        Rival(f"pompy, {NUM_FILAMENTS} puffs", "pompy", "filaments", {32: 100}),
        Rival(f"Singh's update in NumPy, {NUM_PUFFS} puffs", "pompy", "puffs", {}),
    ),
)


def grown_filaments() -> tuple[Field, Callable[[Any], Any]]:
    # At 20 births a second the newest puffs, which are the ones kept, are still in the arena.
    field = Filaments((20.0, 0.0), rate=20.0, dt=0.01, warmup=0, max_puffs=NUM_FILAMENTS, max_births=8)

    def start(key: Any) -> Any:
        x, y = (jnp.full(NUM_FILAMENTS, value) for value in field.source)
        state = field.init(key)
        return type(state)(state.air, x, y, jnp.full(NUM_FILAMENTS, 0.001), state.oldest)

    return field, start


def grown_puffs() -> tuple[Field, Callable[[Any], Any]]:
    field = Puffs(substeps=1, max_puffs=NUM_PUFFS, max_births=16)
    return field, field.init


CASES = {"filaments": grown_filaments, "puffs": grown_puffs}


def ours(case: str, num_plumes: int) -> Run:
    field, start = CASES[case]()

    def share_alive(state: Any) -> Any:
        sizes = state.squared if case == "filaments" else state.radius
        # Positions are looked at too: what nobody reads, the compiler does not compute.
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
        return jax.vmap(lambda own: one(own, num_steps))(random.split(key, num_plumes)).sum()

    return lambda num_steps, seed: float(plumes(random.key(seed), num_steps))


def interleaved(rival: Rival, size: int, effort: Effort) -> tuple[dict[str, Any], dict[str, str]]:
    """The row of one rival at one size, and the versions it was measured with."""
    progress(f"{FIELDS.name} {size:,}: {rival.label}")
    with ExitStack() as stack:
        worker = stack.enter_context(Worker(rival.peer, FIELDS))
        facts = prepared(worker, FIELDS, rival.case, size, effort)
        run = ours(rival.case, size)
        num_steps = calibrated(run, effort.seconds)
        mine: list[float] = []
        theirs: list[float] = []
        for repeat in range(effort.repeats):
            seconds, total = timed(run, num_steps, repeat + 2)
            check_consumed(total, size * num_steps, *FIELDS.consumed)
            mine.append(size * num_steps / seconds)
            answer = worker.ask(do="run")
            theirs.append(answer["steps"] / answer["seconds"])
        return row(FIELDS, size, Prepared(rival.label, worker, facts, rival), mine, theirs), facts["versions"]


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
            measured, versions = interleaved(rival, size, Effort(args.repeats, args.seconds))
            result["rows"].append(measured)
            result["versions"] |= versions
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{FIELDS.name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(rows_as_text(result))


if __name__ == "__main__":
    main()
