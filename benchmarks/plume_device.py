"""Steps per second of compiled plume rollouts on JAX's default accelerator.

It needs no installation: Tropism is imported from `src/`, the rest from `.carry/` (see `benchmarks/carry.py`).
"""

import argparse
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / ".carry")]

import jax  # noqa: E402

CASES = (
    ("PlumeNav-v0", {}, 1_024, 4_096),
    ("PlumeNav-v0", {}, 65_536, 2_048),
    ("PlumeNav-v0", {}, 1_048_576, 512),
    ("PlumeNavPuffs-v0", {}, 4_096, 64),
    ("PlumeNavPuffs-v0", {"shared": True}, 4_096, 256),
    ("PlumeNavFilaments-v0", {"shared": True}, 4_096, 256),
)


def checksum_of(step: Any) -> jax.Array:
    """Sum of observation, reward and flags per agent, so that the compiler cannot remove them."""
    return step.next_obs.sum(-1) + step.reward + step.terminated + step.truncated


def measure(id: str, arguments: dict[str, Any], num_envs: int, num_steps: int, repeats: int) -> dict[str, Any]:
    from tropism import make, random_policy, rollout

    env, params = make(id, **arguments)
    policy = random_policy(env, params)

    @partial(jax.jit, static_argnums=0)
    def compiled(num_steps: int, key: jax.Array) -> jax.Array:
        return rollout(
            env, policy, key, num_envs, num_steps, params=params, collect=False, reduce=checksum_of
        ).totals.sum()

    checksum = float(compiled(num_steps, jax.random.key(0)))
    seconds: list[float] = []
    for seed in range(repeats):
        start = time.perf_counter()
        compiled(num_steps, jax.random.key(seed)).block_until_ready()
        seconds.append(time.perf_counter() - start)
    rate = num_envs * num_steps / statistics.median(seconds)
    return {"id": id, "arguments": arguments, "agents": num_envs, "steps/s": rate, "checksum": checksum}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for id, arguments, num_envs, num_steps in CASES:
        rows.append(measure(id, arguments, num_envs, num_steps, options.repeats))
        row = rows[-1]
        print(f"{id:22} {arguments!s:18} {num_envs:>9,} agents  {row['steps/s']:.3g} steps/s", flush=True)
    device = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    (options.results / "plume_device.json").write_text(json.dumps({**device, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
