"""Reproduces the published search times of source tracking, and compares the speed with otto.

`python -m benchmarks.tracking` runs the searches of the reference table, probability-weighted, in two processes with
one thread each, and writes `results/tracking.json`. `--case` restricts it to one environment.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "tracking.json"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
# Mean number of steps and standard error, measured with otto and with its fork for wind.
REFERENCE = {
    ("SourceTracking1D-v0", "infotaxis"): (12.96, 0.14),
    ("SourceTracking1D-v0", "space-aware-infotaxis"): (7.22, 0.06),
    ("SourceTracking19x19-v0", "infotaxis"): (13.62, 0.16),
    ("SourceTracking19x19-v0", "space-aware-infotaxis"): (13.34, 0.21),
    ("SourceTracking53x53-v0", "infotaxis"): (38.8, 1.1),
    ("SourceTracking53x53-v0", "space-aware-infotaxis"): (32.8, 1.0),
    ("SourceTrackingWindy-v0", "infotaxis"): (75.1, 2.6),
    ("SourceTrackingWindy-v0", "space-aware-infotaxis"): (69.3, 2.4),
}


def measure(id: str, strategy: str, runs: int, seed: int) -> dict[str, Any]:
    """One row of the table; the time includes compilation."""
    from tropism import make
    from tropism.train.evaluation import evaluate

    start, cpu = time.perf_counter(), time.process_time()
    env, params = make(id, draw_source=False, observation="belief")
    figures = evaluate(strategy, env, params, env.strategies(params)[strategy](), seed, runs).summary()
    mean, error = REFERENCE[id, strategy]
    found, own_error = figures["steps"], figures["standard_error"]
    return {
        "id": id, "strategy": strategy, "runs": runs, "mean": found.mean, "standard_error": own_error,
        "reference": mean, "reference_error": error, "z": (found.mean - mean) / math.hypot(own_error, error),
        "not_found": figures["not_found"], "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
    }  # fmt: skip


def chi_square_p(rows: list[dict[str, Any]]) -> float:
    """The probability of a larger sum of squared deviations, for an even number of rows."""
    half, k = sum(row["z"] ** 2 for row in rows) / 2, len(rows)
    return math.exp(-half) * sum(half**i / math.factorial(i) for i in range(k // 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", choices=sorted({id for id, _ in REFERENCE}))
    parser.add_argument("--row", type=int, help="measure one row in this process and print it as JSON")
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(measure(*list(REFERENCE)[options.row], options.runs, options.seed)))
        return
    wanted = [number for number, (id, _) in enumerate(REFERENCE) if options.case in (None, id)]
    rows = run_rows(wanted, options)
    within = all(abs(row["z"]) < 3 for row in rows)
    summary = {"chi_square_p": chi_square_p(rows), "all_within_3_standard_errors": within}
    print(json.dumps(summary))
    if options.case is None:
        RESULTS.write_text(json.dumps({**summary, "rows": rows}, indent=2) + "\n")
    sys.exit(not (within and summary["chi_square_p"] > 0.01))


def run_rows(wanted: list[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure rows, a few processes at a time; the longest ones are the last in the table and start first."""
    waiting, running, rows = sorted(wanted), dict[int, subprocess.Popen[str]](), dict[int, Any]()
    environment = {**os.environ, "XLA_FLAGS": ONE_THREAD, "JAX_PLATFORMS": "cpu"}
    while waiting or running:
        while waiting and len(running) < options.processes:
            number = waiting.pop()
            command = [sys.executable, "-m", "benchmarks.tracking", "--row", str(number)]
            command += ["--runs", str(options.runs), "--seed", str(options.seed)]
            running[number] = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for number, process in list(running.items()):
            if process.poll() is not None:
                output = running.pop(number).communicate()[0]
                rows[number] = json.loads(output)
                row = rows[number]
                print(
                    f"{row['id']:24} {row['strategy']:22} {row['mean']:7.3f} ± {row['standard_error']:.3f}  reference "
                    f"{row['reference']:.2f} ± {row['reference_error']:.2f}  z {row['z']:+.2f}  {row['seconds']:.0f} s",
                    flush=True,
                )
        time.sleep(0.2)
    return [rows[number] for number in sorted(rows)]


if __name__ == "__main__":
    main()
