"""Trained agents beside hand-written strategies, in plumes of puffs of each difficulty.

`python -m benchmarks.search_learning sparse --seeds 0 10` trains an agent for each seed from 0 to 9 and adds it to
`results/search_learning.json`, where each agent and each strategy has run the same episodes, which were not used in
training. An agent depends on its seed alone, so several processes can train different seeds.

Agents have the preset of the environment, except in the far plume, where odour is faint: they perceive its logarithm
and remember longer (`OdourNetwork`).
"""

import argparse
import json
import tempfile
import time
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import numpy as np

from tropism import make
from tropism.core.registry import presets
from tropism.envs.plume.tasks import DIFFICULTIES
from tropism.plume.strategies.catalog import NAMES
from tropism.train.evaluation import Evaluation, Interval, evaluate
from tropism.train.policies import load, resolve_policy
from tropism.train.ppo import PPOConfig
from tropism.train.run import CHECKPOINT, train
from tropism.train.training import Training

RESULTS = Path(__file__).parent / "results" / "search_learning.json"
ID = "PlumeNavPuffs-v0"
EPISODES, FIRST_EPISODE = 512, 20_000
BAND = (10, 50, 90)  # percentiles of agents

BUILT_IN_ONLY = {"recurrent", "hidden"}  # settings of the built-in network
NETWORK = "benchmarks.odour_network:OdourNetwork"
SEARCH: dict[str, Any] = {  # differences from the preset
    "num_envs": 128,
    "num_steps": 128,
    "epochs": 5,
    "learning_rate": 2e-3,
    "gamma": 0.998,
    "entropy": 0.002,
    "normalize": False,
}
REWARD = {  # scaled instead of normalized; five times as much for approach, three times as much against dawdling
    "reward.homed": 2.0,
    "reward.strayed": -0.2,
    "reward.living": -0.001,
    "reward.progress": 0.1,
}
TOTAL_STEPS = {"far": 4_000_000}


def measure_strategies(difficulty: str) -> dict[str, Any]:
    env, params = make(ID, difficulty=difficulty)
    results: dict[str, Any] = {}
    for name in NAMES:
        if name == "fly":  # of another motion
            continue
        policy: Any = resolve_policy(name, env, params)
        results[name] = figures(evaluate(name, env, params, policy, FIRST_EPISODE, EPISODES))
        print(difficulty, name, results[name], flush=True)
    return results


def measure_agent(difficulty: str, seed: int) -> dict[str, Any]:
    start = time.process_time()
    training = settings(difficulty, seed)
    with tempfile.TemporaryDirectory() as folder:
        _, curve = train(training, Path(folder), lambda report: print(report.steps, report.mean, flush=True))
        env, params = training.environment()
        result = figures(evaluate("", env, params, load(Path(folder) / CHECKPOINT), FIRST_EPISODE, EPISODES))
    result |= {"cpu_seconds": round(time.process_time() - start), "steps": curve[-1][0]}
    print(difficulty, seed, result, flush=True)
    return result | {"curve": [[steps, round(returns[0], 2)] for steps, returns in curve if returns[0] is not None]}


def settings(difficulty: str, seed: int) -> Training:
    preset, arguments = presets("ppo")[ID], {"difficulty": difficulty}
    if difficulty not in TOTAL_STEPS:
        return Training(ID, arguments, {}, PPOConfig(**preset), seed, 1)
    numbers: dict[str, Any] = {name: value for name, value in preset.items() if name not in BUILT_IN_ONLY}
    numbers |= SEARCH | {"total_steps": TOTAL_STEPS[difficulty]}
    config = PPOConfig(**numbers)
    return Training(ID, arguments, REWARD, config, seed, 1, NETWORK)


def figures(evaluation: Evaluation) -> dict[str, Any]:
    summary = evaluation.summary()
    return {"found": summary["success"], "time": summary["time_to_find"]}


def store(difficulty: str, kind: str, results: dict[str, Any]) -> None:
    """Add results to the file, which other processes may also do."""
    with RESULTS.open("a+") as file:
        flock(file, LOCK_EX)
        file.seek(0)
        stored = json.loads(file.read() or "{}") | {"id": ID, "episodes": EPISODES, "seed": FIRST_EPISODE}
        task = stored.setdefault("tasks", {}).setdefault(difficulty, {"strategies": {}, "agents": {}})
        task[kind] |= results
        file.truncate(0)
        file.write(json.dumps(stored) + "\n")


def search_learning(result: dict[str, Any]) -> str:
    """The table of all tasks, with every agent, and the verdict on each task."""
    rows = ["| difficulty | policy | found the source | steps to find it |", "|---|---|---|---|"]
    verdicts: list[str] = []
    for difficulty, task in result["tasks"].items():
        rows += [f"| {difficulty} | {name} | {_cells(figures)} |" for name, figures in task["strategies"].items()]
        agents = {seed: task["agents"][seed] for seed in sorted(task["agents"], key=int)}
        rows += [f"| {difficulty} | agent, seed {seed} | {_cells(figures)} |" for seed, figures in agents.items()]
        if len(agents) > 1:
            verdicts.append(_verdict(difficulty, list(agents.values()), list(task["strategies"].values())))
    return "\n".join(["\n".join(verdicts), "", *rows])


def _verdict(difficulty: str, agents: list[Any], strategies: list[Any]) -> str:
    found = [Interval(*each["found"]) for each in agents]
    low, median, high = np.percentile([each.mean for each in found], BAND)
    best = max((Interval(*each["found"]) for each in strategies), key=lambda found: found.mean)
    verb = "beats" if np.median([each.low for each in found]) > best.high else "does not beat"
    beat = sum(each.low > best.high for each in found)
    return (
        f"- {difficulty}: {len(found)} agents of {agents[0]['steps']:,} steps find the source in {median:.1%} of the "
        f"episodes (median; 10 to 90 % of agents: {low:.1%} to {high:.1%}), the best strategy in {best.mean:.1%} "
        f"({best.low:.1%} to {best.high:.1%}). The median agent {verb} it beyond the "
        f"intervals, {beat} of {len(found)} agents do."
    )


def _cells(figures: dict[str, Any]) -> str:
    found, time = figures["found"], figures["time"]
    shown = "–" if time is None else "{:.0f} ({:.0f} to {:.0f})".format(*time)
    return f"{found[0]:.1%} ({found[1]:.1%} to {found[2]:.1%}) | {shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("difficulties", nargs="*", default=list(DIFFICULTIES))
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 0), metavar=("FIRST", "STOP"))
    parser.add_argument("--strategies", action="store_true", help="measure the strategies")
    options = parser.parse_args()
    for difficulty in options.difficulties:
        if options.strategies:
            store(difficulty, "strategies", measure_strategies(difficulty))
        for seed in range(*options.seeds):
            store(difficulty, "agents", {str(seed): measure_agent(difficulty, seed)})


if __name__ == "__main__":
    main()
