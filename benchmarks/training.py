"""PPO on CartPole, compilation included, against PureJaxRL's manner at equal steps and Stable-Baselines3 to 475.

Every training is a process of its own that finds nothing compiled; its clock starts when its libraries are imported.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.comparison import Comparison, Rival
from benchmarks.compat import sb3_python
from benchmarks.last_episodes import LEARNT
from benchmarks.measure import RESULTS, Prepared, processor, progress, row
from benchmarks.peers import ROOT, UnavailableError, python_of
from benchmarks.table import rows_as_text

TOTAL_STEPS = 500_000
LIMIT = 400.0  # seconds one training may take

PUREJAXRL = Rival("PureJaxRL's manner, 500,000 steps", "gymnax", "all", {16: 1, 4: 1})
ZOO = Rival("Stable-Baselines3 with RL Zoo's numbers, to 475", "stable_baselines3", "zoo", {16: 0.05})
DEFAULTS = Rival("Stable-Baselines3 with its defaults, to 475", "stable_baselines3", "defaults", {16: 0.05})

EQUAL = Rival(
    "Stable-Baselines3 with its defaults, 500,000 steps at its rate", "stable_baselines3", "defaults", {16: 0.05}
)
WARM = Rival("the same, our compilation not counted", "stable_baselines3", "zoo")

TRAINING = Comparison(
    name="training",
    title="PPO on CartPole, compilation included, CPU",
    case="ppo",
    sizes=(16, 4),
    rivals=(PUREJAXRL, ZOO, DEFAULTS, EQUAL, WARM),
    unit="s",
)


@dataclass(frozen=True)
class Duel:
    """One rival at one number of our environments; `theirs` and `ours` run one training each, with a given seed."""

    rival: Rival
    size: int

    def ours(self, seed: int) -> dict[str, Any]:
        return trained("tropism", lambda: sys.executable, self.request(seed, self.rival.case != "all"))

    def request(self, seed: int, to_learnt: bool) -> dict[str, Any]:
        return {"num_envs": self.size, "seed": seed, "total_steps": TOTAL_STEPS, "to_learnt": to_learnt}

    def theirs(self, seed: int) -> dict[str, Any]:
        if self.rival.case == "all":
            request = {"num_envs": 4, "seed": seed, "total_steps": TOTAL_STEPS}
            return trained("gymnax", lambda: python_of("gymnax"), request)
        request = {"numbers": self.rival.case, "seed": seed, "limit": LIMIT}
        return trained("stable_baselines3", sb3_python, request)


DUELS = (Duel(PUREJAXRL, 16), Duel(PUREJAXRL, 4), Duel(ZOO, 16), Duel(DEFAULTS, 16))


def trained(library: str, python: Callable[[], str], request: dict[str, Any]) -> dict[str, Any]:
    """What `benchmarks/workers/ppo_<library>.py` says of one training in a fresh process."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src") if library == "tropism" else (ROOT,)))
    variables = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    command = [python(), "-m", f"benchmarks.workers.ppo_{library}", json.dumps(request)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode and library == "tropism":
        raise RuntimeError(done.stderr)
    if done.returncode:
        raise UnavailableError((done.stderr.strip().splitlines() or ["stopped"])[-1])
    answer = json.loads(done.stdout.splitlines()[-1])
    progress(f"{library} {request}: {answer['seconds']:.1f} s, {answer['steps']:,} steps, mean {answer['mean']:.0f}")
    return answer


def fought(duel: Duel, repeats: int, versions: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of one duel: the two take turns, and who begins alternates."""
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for seed in range(repeats):
        turns = [(duel.ours, ours), (duel.theirs, theirs)]
        for train, answers in turns if seed % 2 == 0 else turns[::-1]:
            answers.append(train(seed))
            versions |= answers[-1]["versions"]
    mine, its = ([answer["seconds"] for answer in answers] for answers in (ours, theirs))
    learnt = [sum(answer["mean"] >= LEARNT for answer in answers) for answers in (ours, theirs)]
    rows = [{**duel_row(duel.size, duel.rival, mine, its), "learnt": learnt}]
    if duel.rival is DEFAULTS:
        whole = [trained("tropism", lambda: sys.executable, duel.request(seed, False)) for seed in range(repeats)]
        rates = [answer["seconds"] / answer["steps"] * TOTAL_STEPS for answer in theirs]
        rows.append(duel_row(duel.size, EQUAL, [answer["seconds"] for answer in whole], rates))
    if duel.rival is ZOO:
        running = [answer["seconds"] - answer["compiling"] for answer in ours]
        rows.append(duel_row(duel.size, WARM, running, its))
    return rows


def duel_row(size: int, rival: Rival, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    return row(TRAINING, size, Prepared(rival.label, None, {}, rival), ours, theirs)  # pyright: ignore


def main() -> None:
    parser = argparse.ArgumentParser(description=TRAINING.title)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    args = parser.parse_args()
    machine = {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"}
    versions = {"python": platform.python_version()}
    result: dict[str, Any] = {"name": TRAINING.name, "title": TRAINING.title, "unit": TRAINING.unit}
    result |= {"repeats": args.repeats, "machine": machine, "versions": versions, "rows": [], "skipped": {}}
    for duel in DUELS:
        try:
            result["rows"] += fought(duel, args.repeats, versions)
        except UnavailableError as error:
            result["skipped"][duel.rival.label] = str(error)
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{TRAINING.name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(rows_as_text(result))


if __name__ == "__main__":
    main()
