"""PPO on CartPole with compilation, compared with PPO in the style of PureJaxRL and with Stable-Baselines3.

Every training is a separate process with an empty compilation cache; its time starts after its imports.
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
from benchmarks.measure import RESULTS, Contender, processor, progress, row
from benchmarks.peers import ROOT, UnavailableError, python_of
from benchmarks.table import rows_as_text

TOTAL_STEPS = 500_000
LIMIT = 400.0  # seconds, limit of one training

PUREJAXRL = Rival("PPO in the style of PureJaxRL, 500,000 steps", "gymnax", "all", {16: 1, 4: 1})
ZOO = Rival("Stable-Baselines3 with RL Zoo's hyperparameters, to 475", "stable_baselines3", "zoo", {16: 0.05})
DEFAULTS = Rival("Stable-Baselines3 with its defaults, to 475", "stable_baselines3", "defaults", {16: 0.05})

EQUAL = Rival(
    "Stable-Baselines3 with its defaults, 500,000 steps at its rate", "stable_baselines3", "defaults", {16: 0.05}
)
WARM = Rival("the same, without our compilation time", "stable_baselines3", "zoo")

TRAINING = Comparison(
    name="training",
    title="PPO on CartPole, compilation included, CPU",
    case="ppo",
    sizes=(16, 4),
    rivals=(PUREJAXRL, ZOO, DEFAULTS, EQUAL, WARM),
    unit="s",
)


@dataclass(frozen=True)
class Pairing:
    """One rival at one number of our environments; `ours` and `theirs` each run one training with a given seed."""

    rival: Rival
    size: int

    def ours(self, seed: int) -> dict[str, Any]:
        return run_training("tropism", lambda: sys.executable, self.request(seed, self.rival.case != "all"))

    def request(self, seed: int, to_learnt: bool) -> dict[str, Any]:
        return {"num_envs": self.size, "seed": seed, "total_steps": TOTAL_STEPS, "to_learnt": to_learnt}

    def theirs(self, seed: int) -> dict[str, Any]:
        if self.rival.case == "all":
            request = {"num_envs": 4, "seed": seed, "total_steps": TOTAL_STEPS}
            return run_training("gymnax", lambda: python_of("gymnax"), request)
        request = {"numbers": self.rival.case, "seed": seed, "limit": LIMIT}
        return run_training("stable_baselines3", sb3_python, request)


PAIRINGS = (Pairing(PUREJAXRL, 16), Pairing(PUREJAXRL, 4), Pairing(ZOO, 16), Pairing(DEFAULTS, 16))


def run_training(library: str, python: Callable[[], str], request: dict[str, Any]) -> dict[str, Any]:
    """Run `benchmarks/workers/ppo_<library>.py` for one training in a new process; return its report."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src") if library == "tropism" else (ROOT,)))
    variables = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    command = [python(), "-m", f"benchmarks.workers.ppo_{library}", json.dumps(request)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode and library == "tropism":
        raise RuntimeError(done.stderr)
    if done.returncode:
        raise UnavailableError((done.stderr.strip().splitlines() or ["stopped"])[-1])
    reply = json.loads(done.stdout.splitlines()[-1])
    progress(f"{library} {request}: {reply['seconds']:.1f} s, {reply['steps']:,} steps, mean {reply['mean']:.0f}")
    return reply


def run_pairing(pairing: Pairing, repeats: int, versions: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of one pairing: the two take turns, and the order alternates."""
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for seed in range(repeats):
        turns = [(pairing.ours, ours), (pairing.theirs, theirs)]
        for train, replies in turns if seed % 2 == 0 else turns[::-1]:
            replies.append(train(seed))
            versions |= replies[-1]["versions"]
    ours_seconds, theirs_seconds = ([reply["seconds"] for reply in replies] for replies in (ours, theirs))
    learnt = [sum(reply["mean"] >= LEARNT for reply in replies) for replies in (ours, theirs)]
    rows = [{**pairing_row(pairing.size, pairing.rival, ours_seconds, theirs_seconds), "learnt": learnt}]
    if pairing.rival is DEFAULTS:
        whole = [
            run_training("tropism", lambda: sys.executable, pairing.request(seed, False)) for seed in range(repeats)
        ]
        rates = [reply["seconds"] / reply["steps"] * TOTAL_STEPS for reply in theirs]
        rows.append(pairing_row(pairing.size, EQUAL, [reply["seconds"] for reply in whole], rates))
    if pairing.rival is ZOO:
        running = [reply["seconds"] - reply["compiling"] for reply in ours]
        rows.append(pairing_row(pairing.size, WARM, running, theirs_seconds))
    return rows


def pairing_row(size: int, rival: Rival, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    return row(TRAINING, size, Contender(rival.label, None, {}, rival), ours, theirs)  # pyright: ignore


def main() -> None:
    parser = argparse.ArgumentParser(description=TRAINING.title)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    args = parser.parse_args()
    machine = {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(), "device": "cpu"}
    versions = {"python": platform.python_version()}
    result: dict[str, Any] = {"name": TRAINING.name, "title": TRAINING.title, "unit": TRAINING.unit}
    result |= {"repeats": args.repeats, "machine": machine, "versions": versions, "rows": [], "skipped": {}}
    for pairing in PAIRINGS:
        try:
            result["rows"] += run_pairing(pairing, args.repeats, versions)
        except UnavailableError as error:
            result["skipped"][pairing.rival.label] = str(error)
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{TRAINING.name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(rows_as_text(result))


if __name__ == "__main__":
    main()
