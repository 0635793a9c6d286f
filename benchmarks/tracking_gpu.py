"""Steps per second of 1,024 searches on JAX's default accelerator.

It needs no installation: Tropism is imported from `src/`, the rest from `.carry/` (see `benchmarks/carry.py`).
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / ".carry")]

import jax  # noqa: E402

SEARCHES, STEPS, REPEATS = 1024, 200, 5


def measure(id: str, strategy: str) -> dict[str, Any]:
    from tropism import make, rollout

    env, params = make(id, draw_source=False, observation="belief")
    policy = env.strategies(params)[strategy]()
    seconds: list[float] = []
    for seed in range(REPEATS + 1):  # the first compiles
        start = time.perf_counter()
        result = rollout(env, policy, seed, SEARCHES, STEPS, params=params, collect=False)
        jax.block_until_ready(result.episodes.total_return)
        seconds.append(time.perf_counter() - start)
    rate = SEARCHES * STEPS / statistics.median(seconds[1:])
    return {"id": id, "strategy": strategy, "searches": SEARCHES, "steps/s": rate}


def main() -> None:
    rows: list[dict[str, Any]] = []
    for id in ("SourceTracking19x19-v0", "SourceTracking53x53-v0", "SourceTrackingWindy-v0"):
        for strategy in ("infotaxis", "space-aware-infotaxis"):
            rows.append(measure(id, strategy))
            print(f"{id:24} {strategy:22} {rows[-1]['steps/s']:.3g} steps/s", flush=True)
    device = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    results = ROOT / "benchmarks" / "results" / "tracking_gpu.json"
    results.write_text(json.dumps({**device, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
