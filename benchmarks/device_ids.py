"""Steps per second of compiled rollouts of every pure environment on JAX's default accelerator.

It needs no installation: Tropism is imported from `src/`, the rest from `.carry/` (see `benchmarks/carry.py`).
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / ".carry")]

import jax  # noqa: E402


class Case(NamedTuple):
    id: str
    agents: int
    steps: int
    arguments: dict[str, Any] = {}  # noqa: RUF012
    compared: bool = False
    """Whether to measure XLA's loop too."""


SMALL = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "GridWorld-v0")
PLUMES = ("PlumeNav-v0", "PlumeNavMovie-v0")
CASES = (
    *(Case(id, agents, steps) for id in (*SMALL, *PLUMES) for agents, steps in ((1_024, 2**17), (1_048_576, 4_096))),
    *(Case(id, 65_536, 2**13, compared=True) for id in (*SMALL, *PLUMES)),
    Case("ConnectFour-v0", 65_536, 512),
    Case("PixelGridWorld-v0", 65_536, 512),
    Case("PlumeNavMeander-v0", 65_536, 1_024),
    Case("PlumeNavPuffs-v0", 4_096, 256),
    Case("PlumeNavPuffs-v0", 1_048_576, 2),
    Case("PlumeNavPuffs-v0", 4_096, 1_024, {"shared": True}),
    Case("PlumeNavFilaments-v0", 4_096, 256),
    Case("PlumeNavFilaments-v0", 4_096, 1_024, {"shared": True}),
)


def checksum_of(step: Any) -> jax.Array:
    """Sum of observation, reward and flags per agent, so that the compiler cannot remove them."""
    obs = sum(leaf.reshape(leaf.shape[0], -1).sum(-1) for leaf in jax.tree.leaves(step.next_obs))
    return obs + step.reward + step.terminated + step.truncated


def measure(case: Case, repeats: int, engine: str) -> tuple[float, float]:
    """Steps per second, and the mean of the checksum over agents and steps."""
    from tropism import make, random_policy, rollout

    env, params = make(case.id, **case.arguments)
    policy = random_policy(env, params)

    def run(seed: int) -> float:
        options: Any = {"params": params, "collect": False, "reduce": checksum_of, "engine": engine}
        return float(rollout(env, policy, seed, case.agents, case.steps, **options).totals.mean()) / case.steps

    checksum = run(0)
    seconds: list[float] = []
    for seed in range(1, repeats + 1):
        start = time.perf_counter()
        run(seed)
        seconds.append(time.perf_counter() - start)
    return case.agents * case.steps / statistics.median(seconds), checksum


def engine_of(case: Case) -> str:
    """The engine that `auto` chooses."""
    from tropism import make, random_policy
    from tropism.core.rollout.choice import choose_run
    from tropism.core.rollout.plan import RolloutPlan
    from tropism.core.rollout.scan import run_steps

    env, params = make(case.id, **case.arguments)
    plan = RolloutPlan(env, random_policy(env, params), case.agents, False, checksum_of, False, "auto")
    run = choose_run(plan, jax.random.key(0), jax.tree.map(jax.numpy.asarray, params), "auto", case.steps)
    return "xla" if run is run_steps else "fused"


def row(case: Case, repeats: int) -> dict[str, Any]:
    rate, checksum = measure(case, repeats, "auto")
    return {
        "id": case.id,
        "arguments": case.arguments,
        "agents": case.agents,
        "engine": engine_of(case),
        "steps/s": rate,
        "xla steps/s": measure(case, repeats, "xla")[0] if case.compared else None,
        "checksum": checksum,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ids", nargs="+", help="only these environments")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    path: Path = options.results / "device_ids.json"
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for case in CASES:
        if options.ids and case.id not in options.ids:
            continue
        try:
            rows.append(row(case, options.repeats))
            print(json.dumps(rows[-1]), flush=True)
        except Exception as error:  # noqa: BLE001 - the others are measured nevertheless
            failed[f"{case.id} {case.agents:,}"] = f"{type(error).__name__}: {error}".splitlines()[0]
            print(case, failed, flush=True)
        device = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "failed": failed}
        path.write_text(json.dumps({**device, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
