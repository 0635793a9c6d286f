"""The assay of Singh et al. 2023: a policy flies from the same 240 starts in each of four plumes."""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.episode import Timestep
from tropism.core.rollout.episodes import run_episodes
from tropism.core.rollout.policy import as_policy
from tropism.envs.plume.nav import PlumeNav, PlumeNavParams
from tropism.envs.plume.tasks import singh
from tropism.plume.fields import share
from tropism.plume.wind import SwitchOnce

DISTANCES = (4.0, 6.0, 8.0)  # m downwind of the source
DELAYS = (0, 25)  # steps after the first start: 0 s and 1 s
NUM_HEADINGS = 8
MARGIN = 0.5  # m; in a constant wind, some starts are this far beyond the plume
BAND = 0.5  # m around a distance, in which the width of the plume is measured
NUM_SAMPLED = 300  # puffs by which it is measured
SWITCH_AFTER = 2.0  # s after the first start, at which a wind turns once


class Condition(NamedTuple):
    """A plume of the assay, and the number of successes of the recurrent agents of the paper."""

    name: str
    regime: str
    keep: float
    published: tuple[int, int]  # the lowest and the highest of 240


CONDITIONS = (
    Condition("constant", "constant", 1.0, (111, 152)),
    Condition("sparse", "constant", 0.4, (80, 158)),
    Condition("switch once", "switch_once", 1.0, (22, 103)),
    Condition("switch many", "switch_many", 1.0, (53, 133)),
)


class AssayResult(NamedTuple):
    """The outcome of the 240 flights in one plume."""

    condition: Condition
    starts: NDArray[Any]  # (240, 4): x and y in metres, heading in degrees, delay in steps
    found: NDArray[Any]  # (240,), whether the flight reached the source
    steps: NDArray[Any]  # (240,)


def assay_env(condition: Condition) -> PlumeNav:
    env = singh(condition.regime, condition.keep)
    field: Any = env.field
    if condition.regime == "switch_once":
        field = replace(field, flow=SwitchOnce(earliest=SWITCH_AFTER, latest=SWITCH_AFTER))
    return env.with_parts(field=field)


def run_assay(policy: Any, condition: Condition, seed: int = 0) -> AssayResult:
    """Fly from every start of one condition; `seed` selects the realisation of the plume."""
    env = assay_env(condition)
    params = env.default_params()
    num_frames = DELAYS[-1] + env.max_steps + 1
    field = share(params.field, random.key(seed), num_frames)
    starts = find_starts(field, off_plume=condition.regime == "constant", seed=seed)
    start = replace(params.start, fixed=1, point=(starts[:, 0], starts[:, 1]), heading=starts[:, 2])
    params = replace(params, start=start, field=replace(field, first=starts[:, 3].astype(int)))
    done = run_episodes(env, as_policy(policy), seed, len(starts), params, _success, params_axes=_axes(params))
    return AssayResult(condition, starts, np.asarray(done.probe_values), np.asarray(done.steps))


def find_starts(field: Any, off_plume: bool, seed: int) -> NDArray[Any]:
    """The starts in a shared realisation: at each distance and delay, five positions across the plume."""
    rng = np.random.default_rng(seed)
    headings = np.arange(NUM_HEADINGS) * 360.0 / NUM_HEADINGS
    rows: list[tuple[float, float, float, int]] = []
    for x in DISTANCES:
        for delay in DELAYS:
            low, high = _plume_edges(rng, field.puffs(jnp.int32(delay)), x)
            across = np.linspace(low, high, 5)
            if off_plume:
                across = np.array([low - MARGIN, *np.linspace(low, high, 3), high + MARGIN])
            rows += [(x, y, heading, delay) for heading in headings for y in across]
    return np.array(rows)


def _plume_edges(rng: np.random.Generator, puffs: Any, distance: float) -> tuple[float, float]:
    """The lowest and highest y of some puffs around a distance; 0 if there are none."""
    x, y, alive = (np.asarray(part) for part in puffs)
    chosen = rng.permutation(np.flatnonzero(alive))[:NUM_SAMPLED]
    near = y[chosen][np.abs(x[chosen] - distance) <= BAND]
    return (float(near.min()), float(near.max())) if near.size else (0.0, 0.0)


def _axes(params: PlumeNavParams) -> Any:
    """Which params differ between episodes: `in_axes` of `jax.vmap`."""
    same = jax.tree.map(lambda _: None, params)
    where: Any = lambda tree: (tree.start.point, tree.start.heading, tree.field.first)  # noqa: E731
    return eqx.tree_at(where, same, ((0, 0), 0, 0), is_leaf=lambda leaf: leaf is None)


def _success(_previous: Any, _state: Any, timestep: Timestep) -> Any:
    return timestep.info["goal_reached"]
