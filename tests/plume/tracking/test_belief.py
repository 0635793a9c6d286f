"""Hits, beliefs and costs equal those of an independent slow implementation, on small grids."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from scipy.special import k0
from scipy.stats import poisson
from tests.plume.tracking.slow_search import COSTS, SlowSearch, isotropic_mean, windy_mean

from tropism.plume.tracking import BeliefState, HitTable, IsotropicHits, WindyHits
from tropism.plume.tracking.belief import draw_index
from tropism.plume.tracking.bessel import bessel_k0
from tropism.plume.tracking.hits import poisson_bins, shell_volume
from tropism.plume.tracking.strategies import STRATEGIES

CASES: dict[str, tuple[Any, SlowSearch]] = {
    "1-D": (IsotropicHits(2.0, 2.0), SlowSearch(isotropic_mean(2.0, 2.0), (9,), 4)),
    "2-D": (IsotropicHits(1.0, 1.0), SlowSearch(isotropic_mean(1.0, 1.0), (5, 7), 3)),
    "3-D": (IsotropicHits(1.5, 2.0), SlowSearch(isotropic_mean(1.5, 2.0), (3, 4, 3), 3)),
    "windy": (WindyHits(2.5), SlowSearch(windy_mean(2.5), (7, 5), 2)),
}
each_case = pytest.mark.parametrize("case", CASES)


def table_of(case: str) -> HitTable:
    model, slow = CASES[case]
    return HitTable.of(model, slow.shape, slow.num_hits, tuple(size // 2 for size in slow.shape))


def random_belief(slow: SlowSearch, seed: int) -> tuple[Any, Any]:
    """A position, and a belief that varies over orders of magnitude and excludes it."""
    rng = np.random.default_rng(seed)
    position = tuple(int(rng.integers(size)) for size in slow.shape)
    belief = rng.random(slow.shape) ** rng.integers(1, 9)
    belief[position] = 0
    return position, belief / belief.sum()


@pytest.mark.parametrize(("x64", "bound"), [(False, 1e-6), (True, 1e-13)])
def test_k0_equals_that_of_scipy(x64: bool, bound: float):
    with jax.enable_x64(x64):
        x = jnp.geomspace(1e-3, 80, 5000)
        exact = k0(np.asarray(x, np.float64))
        assert np.max(np.abs(np.asarray(jax.jit(bessel_k0)(x), np.float64) / exact - 1)) < bound


@pytest.mark.parametrize("count", [2, 4, 12])
def test_poisson_bins_are_precise_where_they_are_small(count: int):
    mean = np.geomspace(1e-6, 80, 200)
    bins = np.asarray(poisson_bins(jnp.asarray(mean, jnp.float32), count), float)
    exact = np.stack([*[poisson.pmf(h, mean) for h in range(count - 1)], poisson.sf(count - 2, mean)], -1)
    visible = exact > 1e-30
    np.testing.assert_allclose(bins[visible], exact[visible], rtol=3e-5)
    np.testing.assert_allclose(bins.sum(-1), 1, rtol=2e-5)


@each_case
def test_likelihoods_equal_the_slow_ones_and_sum_to_one(case: str):
    table, slow = table_of(case), CASES[case][1]
    middle = tuple(size // 2 for size in slow.shape)
    for source in slow.cells():
        offset = jnp.array(np.subtract(source, middle))
        found = np.asarray(table.at_offset(offset))
        np.testing.assert_allclose(found, [slow.likelihood(middle, source, h) for h in range(slow.num_hits)], rtol=2e-5)
        assert found.sum() == pytest.approx(float(source != middle), abs=1e-6)


@each_case
@pytest.mark.parametrize("seed", range(4))
def test_updates_equal_the_slow_ones(case: str, seed: int):
    table, slow = table_of(case), CASES[case][1]
    position, belief = random_belief(slow, seed)
    state = BeliefState(jnp.array(position, jnp.int32), jnp.asarray(belief, jnp.float32))
    for hits in range(slow.num_hits):
        after = table.update(state, jnp.int32(hits))
        np.testing.assert_allclose(after.belief, slow.update(belief, position, hits), rtol=1e-4, atol=1e-9)


@each_case
@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("seed", range(4))
def test_costs_differ_between_actions_as_the_slow_ones_do(case: str, name: str, seed: int):
    table, slow = table_of(case), CASES[case][1]
    position, belief = random_belief(slow, seed)
    state = BeliefState(jnp.array(position, jnp.int32), jnp.asarray(belief, jnp.float32))
    strategy = STRATEGIES[name](table, False)
    costs = np.asarray(strategy.costs(random.key(0), state, table.neighbours(state.position)))
    expected = slow.costs(name, belief, position)
    reached = np.array([costs[action] for action in expected])
    wanted = np.array(list(expected.values()))
    np.testing.assert_allclose(reached - reached[0], wanted - wanted[0], rtol=1e-3, atol=2e-5)
    best = sorted(wanted)
    if len(best) > 1 and best[1] - best[0] > 1e-4:  # not a tie
        assert int(strategy.choose(random.key(0), state)) == list(expected)[int(np.argmin(wanted))]


@pytest.mark.parametrize(
    ("dims", "length", "rate", "num_hits", "size", "max_steps"),
    [(1, 2.0, 2.0, 4, 33, 132), (2, 1.0, 1.0, 3, 19, 642), (2, 3.0, 2.0, 4, 53, 2188)],
)
def test_default_sizes_are_those_of_the_literature(
    dims: int, length: float, rate: float, num_hits: int, size: int, max_steps: int
):
    model = IsotropicHits(length, rate)
    assert model.default_num_hits(dims) == num_hits
    assert model.default_size(dims, num_hits) == size
    assert model.default_max_steps(dims, size) == max_steps


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_shells_fill_a_ball(dims: int):
    ball = {1: 2 * 9.5, 2: np.pi * 9.5**2, 3: 4 / 3 * np.pi * 9.5**3}[dims]
    core = {1: 1.0, 2: np.pi / 4, 3: np.pi / 6}[dims]
    assert shell_volume(np.arange(1, 10), dims).sum() + core == pytest.approx(ball)


@given(
    st.lists(st.just(0.0) | st.floats(0.125, 1, width=32), min_size=1, max_size=9).filter(any), st.integers(0, 2**30)
)
@settings(deadline=None, max_examples=50)
def test_an_index_of_weight_zero_is_never_drawn(weights: list[float], seed: int):
    assert weights[int(draw_index(random.key(seed), jnp.asarray(weights, jnp.float32)))] > 0


def test_indices_are_drawn_in_proportion_to_their_weights():
    weights = jnp.array([1.0, 0.0, 2.0, 5.0])
    drawn = jax.vmap(lambda key: draw_index(key, weights))(random.split(random.key(0), 4000))
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, weights / 8, atol=0.03)
