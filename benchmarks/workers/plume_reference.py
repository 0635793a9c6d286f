"""Concentrations over time at seven points in the plumes of other projects: pompy, and the simulator of Singh et al.

Runs in the environment of the other project; one run is one realisation.
"""

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = {
    "puffs": [(1, 0), (2, 0), (2, 0.1), (4, 0), (4, 0.2), (6, 0), (8, 0.2)],
    "filaments": [(8, 0), (12, 0), (20, 0), (20, 4), (35, 0), (35, 8), (60, 0)],
}
CHECKED_STEPS = 400  # in which the arrays are compared with pompy's own loop over puffs


class ArrayPlume:
    """The update of pompy's PlumeModel for all puffs at once: the same random numbers, and the same wind."""

    def __init__(self, wind: Any, rate: float, scatter: float, rng: Any):
        self.wind, self.rate, self.scatter, self.rng = wind, rate, scatter, rng
        self.puffs = np.zeros((0, 4))  # x, y, z, squared radius

    def update(self, dt: float) -> None:
        born = np.tile((5.0, 0.0, 0.0, 0.0316**2), (self.rng.poisson(self.rate * dt), 1))
        puffs = np.concatenate([self.puffs, born])
        velocity = self.rng.normal(size=(len(puffs), 3)) * self.scatter
        self.wind.velocity_at_pos(0.0, 0.0)  # fits the splines to the wind of this step
        velocity[:, 0] += self.wind._interp_u.ev(puffs[:, 0], puffs[:, 1])
        velocity[:, 1] += self.wind._interp_v.ev(puffs[:, 0], puffs[:, 1])
        puffs[:, :3] += velocity * dt
        puffs[:, 3] += 0.001 * dt
        region = self.wind.sim_region
        inside_x = (puffs[:, 0] >= region.x_min) & (puffs[:, 0] <= region.x_max)
        self.puffs = puffs[inside_x & (puffs[:, 1] >= region.y_min) & (puffs[:, 1] <= region.y_max)]


def filaments(seed: int, dt: float) -> Iterator[NDArray[Any]]:
    """One realisation of pompy's plume, in three dimensions, from wind and arena without odour."""
    models, rate = importlib.import_module("pompy.models"), 5.0
    calculator = importlib.import_module("pompy.processors").ConcentrationValueCalculator(8.3e8)
    x, y = np.array(POINTS["filaments"], float).T
    scatter = 2.0 * (0.01 / dt) ** 0.5  # the diffusion of the paper's noise, drawn every 0.01 s

    def make_wind() -> Any:
        rng = np.random.RandomState(seed)
        region = models.Rectangle(0.0, 100.0, -50.0, 50.0)
        wind = models.WindModel(region, 21, 21, 1.0, 0.0, 10.0, 10.0, 2.0, 0.1, 0.2, rng=rng)
        wind.update(dt)
        return wind

    wind = make_wind()
    plume = ArrayPlume(wind, rate, scatter, wind.noise_gen.rng)
    if seed == 0:
        _compare(plume, models, make_wind(), dt)
        wind = make_wind()
        plume = ArrayPlume(wind, rate, scatter, wind.noise_gen.rng)
    while True:
        wind.update(dt)
        plume.update(dt)
        yield calculator.calc_conc_list(plume.puffs, x, y)


def _compare(plume: ArrayPlume, models: Any, wind: Any, dt: float) -> None:
    """Raise if the arrays do not move as pompy's own puffs do."""
    options = {"puff_release_rate": plume.rate, "centre_rel_diff_scale": plume.scatter, "init_num_puffs": 0}
    theirs = models.PlumeModel(wind.sim_region, (5.0, 0.0), wind, rng=wind.noise_gen.rng, **options)
    for _ in range(CHECKED_STEPS):
        plume.wind.update(dt)
        plume.update(dt)
        wind.update(dt)
        theirs.update(dt)
    np.testing.assert_allclose(plume.puffs, theirs.puff_array, rtol=1e-9, atol=1e-9)


def puffs(seed: int, dt: float) -> Iterator[NDArray[Any]]:
    """One realisation of the released simulator in a constant wind; its puffs are squares."""
    simulator, pandas = importlib.import_module("sim_utils"), importlib.import_module("pandas")
    np.random.seed(seed)  # noqa: NPY002 - what the simulator uses
    state = pandas.DataFrame([simulator.gen_puff_dict(puff_number=0, tidx=0)])
    points, step = np.array(POINTS["puffs"], float), 0
    while True:
        wind = pandas.DataFrame({"wind_x": [0.5], "wind_y": [0.0], "time": [step * dt]})
        state = simulator.manual_integrator(state, wind, step, birth_rate=1.0, wind_y_var=0.5)
        x, y, radius = (state[name].to_numpy() for name in ("x", "y", "radius"))
        far = np.maximum(np.abs(points[:, :1] - x), np.abs(points[:, 1:] - y))
        yield np.where(far < radius, (0.01 / radius) ** 3, 0).sum(1)
        step += 1


CASES = {"filaments": (filaments, 0.025, 250.0, 1.0), "puffs": (puffs, 0.01, 20.0, 0.1)}  # step, warm-up, interval: s


def record(case: str, seed: int, seconds: float) -> NDArray[Any]:
    """(sample, point), after the plume has developed."""
    simulate, dt, warmup, interval = CASES[case]
    every, first = round(interval / dt), round(warmup / dt)
    steps = zip(range(first + round(seconds / dt)), simulate(seed, dt), strict=False)
    return np.array([values for step, values in steps if step >= first and step % every == 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("out", type=Path, help="folder for one array per run")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.runs):
        np.save(args.out / f"{args.case}-{seed}.npy", record(args.case, seed, args.seconds))


if __name__ == "__main__":
    main()
