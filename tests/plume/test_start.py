"""Start positions: uniform, outside the goal and obstacles, in zones, at points."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.plume.places import blocking

from tropism.errors import ValidationError
from tropism.plume.scene import AgentPose, Arena
from tropism.plume.start import Start

GRID = Arena((0.0, 0.0), (7.0, 5.0), None, (6, 8))
SOURCE = jnp.array([3.0, 2.0])
COUNT = 20_000


def seeds(count: int) -> Any:
    """The keys of the seeds 0, 1, 2, …, which differ in few bits."""
    return jax.vmap(random.key)(jnp.arange(count))


def splits(count: int) -> Any:
    return random.split(random.key(5), count)


def place(
    start: Start, keys: Any, arena: Arena = GRID, goal_radius: float = 0.0, on_grid: bool = True, source: Any = SOURCE
) -> AgentPose:
    return jax.jit(jax.vmap(lambda key: start.place(key, arena, source, goal_radius, on_grid)))(keys)


def chi_square(counts: Any) -> float:
    """Approximate standard deviations above the expectation."""
    expected = counts.sum() / counts.size
    return float((((counts - expected) ** 2 / expected).sum() - counts.size) / np.sqrt(2 * counts.size))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [seeds, splits])
@pytest.mark.parametrize("radius", [1.0, 2.3])  # the goal covers a tenth of the arena, or nearly half
def test_uniform_over_the_free_cells(keys: Callable[[int], Any], radius: float) -> None:
    xy = np.asarray(place(Start(), keys(COUNT), goal_radius=radius).xy).astype(int)
    counts = np.zeros((6, 8))
    np.add.at(counts, (xy[:, 1], xy[:, 0]), 1)
    x, y = np.meshgrid(np.arange(8), np.arange(6))
    goal = np.hypot(x - 3, y - 2) <= radius
    assert (counts[goal] == 0).all()
    assert chi_square(counts[~goal]) < 4


@pytest.mark.slow
def test_uniform_between_many_obstacles() -> None:
    mask = np.random.default_rng(0).random((16, 16)) < 0.9
    arena = Arena((0.0, 0.0), (15.0, 15.0), jnp.asarray(mask), (16, 16))
    xy = np.asarray(place(Start(), splits(COUNT), arena).xy).astype(int)
    counts = np.zeros((16, 16))
    np.add.at(counts, (xy[:, 1], xy[:, 0]), 1)
    free = ~mask
    free[2, 3] = False  # the source
    assert (counts[~free] == 0).all()
    assert chi_square(counts[free]) < 4


@pytest.mark.parametrize("keys", [seeds, splits])
def test_uniform_over_a_zone_and_all_headings(keys: Callable[[int], Any]) -> None:
    arena = Arena((-2.0, -2.0), (8.0, 2.0), None, (41, 101))
    pose = place(Start(low=(4, -1), high=(8, 1)), keys(COUNT), arena, 0.2, on_grid=False)
    assert pose.xy.dtype == jnp.float32
    x, y = np.asarray(pose.xy).T
    counts = np.histogram2d(x, y, (8, 4), ((4, 8), (-1, 1)))[0]
    assert counts.sum() == COUNT
    assert chi_square(counts) < 4
    assert chi_square(np.histogram(pose.heading, 16, (-np.pi, np.pi))[0]) < 4
    assert abs(np.corrcoef(pose.xy[:, 0], pose.xy[:, 1])[0, 1]) < 4 / np.sqrt(COUNT)
    assert abs(np.corrcoef(pose.xy[:, 0], pose.heading)[0, 1]) < 4 / np.sqrt(COUNT)
    np.testing.assert_array_equal(pose.velocity, 0)
    assert not pose.absorbed.any()


def test_a_fractional_zone_on_a_grid_contains_the_whole_points_inside() -> None:
    xy = np.asarray(place(Start(low=(1.5, 0.2), high=(4.9, 3.0)), splits(2000)).xy)
    assert set(map(tuple, xy.tolist())) == {(x, y) for x in (2, 3, 4) for y in (1, 2, 3)} - {(3, 2)}


def test_a_fixed_start_and_heading() -> None:
    pose = place(Start(fixed=1, point=(3, 2), heading=90), splits(3), goal_radius=50.0)
    np.testing.assert_array_equal(pose.xy, np.broadcast_to([3, 2], (3, 2)))
    np.testing.assert_allclose(pose.heading, np.pi / 2)


def test_without_a_free_point_the_start_is_in_the_zone() -> None:
    xy = np.asarray(place(Start(low=(1.0, 1.0), high=(2.0, 2.0)), splits(50), goal_radius=100.0).xy)
    assert xy.min() >= 1
    assert xy.max() <= 2


def test_any_kind_of_key_and_double_precision() -> None:
    raw = random.split(random.PRNGKey(5), 7)
    np.testing.assert_array_equal(place(Start(), raw).xy, place(Start(), splits(7)).xy)
    with jax.enable_x64(True):
        pose = place(Start(), splits(7))
        assert pose.xy.dtype == pose.heading.dtype == jnp.float64
        np.testing.assert_array_equal(pose.xy, place(Start(), splits(7)).xy)


def test_the_start_is_differentiable_in_the_zone() -> None:
    arena = blocking((1, 1), size=8)

    def x(low: Any) -> Any:
        start = Start(low=(low, 0.0), high=(7.0, 7.0))
        return start.place(random.key(1), arena, SOURCE, 0.5, False).xy[0]

    value, slope = jax.jit(jax.value_and_grad(x))(2.0)
    np.testing.assert_allclose(slope, 1 - (value - 2) / 5, rtol=1e-4)


@pytest.mark.parametrize("options", [{"low": (1.0,)}, {"high": (np.nan, 1.0)}, {"point": "here"}, {"heading": np.inf}])
def test_invalid_starts_are_rejected(options: Any) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        Start(**options)
