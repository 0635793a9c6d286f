"""Mean, standard deviation and intermittency at seven points of our plumes, beside pompy and the released simulator.

pompy 0.1.1 is installed into `.peers/`; its puffs scatter in z, a step is 0.025 s with the noise of the paper's 0.01 s.
The simulator of Singh et al. is not on the package index: pass the folder of a checkout with `sim_utils.py`.

    python -m benchmarks.plume_statistics --plumetracknets CHECKOUT/code
"""

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from benchmarks.measure import RESULTS
from benchmarks.peers import REQUIREMENTS, ROOT, python_of
from benchmarks.workers.plume_reference import CASES, POINTS
from tropism.plume.fields import Field, Filaments, Puffs

REQUIREMENTS["pompy"] = ("pompy==0.1.1", "numpy==1.26.4", "scipy==1.13.1")
REQUIREMENTS["plumetracknets"] = ("numpy", "scipy", "pandas", "matplotlib", "tqdm", "numba")
PEERS = {"puffs": "plumetracknets", "filaments": "pompy"}
RUNS = {"puffs": (10, 30.0), "filaments": (13, 500.0)}  # realisations, and seconds of each
CONTACT = {"puffs": 1e-4, "filaments": 1e3}  # concentrations above this are contacts
FIELDS: dict[str, tuple[Field, int, int, int]] = {  # field, realisations, samples of each, steps between samples
    "puffs": (Puffs(square=True), 64, 100, 25),
    "filaments": (Filaments(rate=5.0, max_puffs=700), 48, 400, 10),
}
NAMES = ("mean", "deviation", "intermittency")


def statistics(series: NDArray[Any], threshold: float) -> dict[str, list[float]]:
    """The statistics of (realisation, sample, point) at each point, with errors by a jackknife over realisations."""
    moments = np.stack([series.mean(1), (series**2).mean(1), (series > threshold).mean(1)])

    def values(moments: NDArray[Any]) -> NDArray[Any]:
        mean, square, contacts = moments
        return np.stack([mean, np.sqrt(np.maximum(square - mean**2, 0)), contacts])

    num = series.shape[0]
    without_one = values((moments.sum(1, keepdims=True) - moments) / (num - 1))
    errors = np.sqrt((num - 1) * without_one.var(1))
    pairs = zip(NAMES, values(moments.mean(1)).tolist(), errors.tolist(), strict=True)
    return {key: numbers for name, value, error in pairs for key, numbers in ((name, value), (f"{name}_error", error))}


def simulate(case: str, seed: int = 0, num: int | None = None) -> NDArray[Any]:
    """Our concentrations, (realisation, sample, point)."""
    field, realisations, samples, stride = FIELDS[case]
    points = jnp.asarray(POINTS[case], float)

    def sample(state: Any, key: Any) -> tuple[Any, Any]:
        state = jax.lax.scan(lambda s, k: (field.advance(k, s), None), state, random.split(key, stride))[0]
        return state, field.concentration(state, points)

    @jax.jit
    @jax.vmap
    def realisation(key: Any) -> Any:
        return jax.lax.scan(sample, field.init(key), random.split(key, samples))[1]

    return np.asarray(realisation(random.split(random.key(seed), num or realisations)), float)


def z_scores(ours: dict[str, Any], theirs: dict[str, Any], name: str) -> NDArray[Any]:
    """The differences in combined standard errors; 0 where both are equal without an error."""
    difference = np.subtract(ours[name], theirs[name])
    error = np.hypot(ours[f"{name}_error"], theirs[f"{name}_error"])
    return np.divide(difference, error, out=np.zeros_like(difference), where=difference != 0)


def run_reference(case: str, out: Path, checkout: Path | None) -> None:
    """Simulate the reference, one file per realisation; this takes minutes."""
    runs, seconds = RUNS[case]
    paths = os.pathsep.join(map(str, (ROOT, *([] if checkout is None else [checkout]))))
    command = [python_of(PEERS[case]), "-W", "ignore", "-m", "benchmarks.workers.plume_reference", case, str(out)]
    command += ["--runs", str(runs), "--seconds", str(seconds)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plumetracknets", type=Path, help="folder with sim_utils.py of the released simulator")
    parser.add_argument(
        "--reference", type=Path, default=ROOT / ".peers" / "plume_reference", help="folder of its runs"
    )
    args = parser.parse_args()
    args.reference.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {}
    for case in FIELDS:
        if not list(args.reference.glob(f"{case}-*.npy")):
            run_reference(case, args.reference, args.plumetracknets)
        series = np.stack([np.load(path) for path in sorted(args.reference.glob(f"{case}-*.npy"))])
        result[case] = {
            "points": POINTS[case],
            "reference": {"runs": len(series), "seconds": series.shape[1] * CASES[case][3], "interval": CASES[case][3]},
            "theirs": statistics(series, CONTACT[case]),
            "ours": statistics(simulate(case), CONTACT[case]),
        }
    (RESULTS / "plume_statistics.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
