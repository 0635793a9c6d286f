"""The arena, obstacles and concentrations."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.plume.places import ARENA, agent, blocking, scene

from tropism.errors import ValidationError
from tropism.plume.scene import Arena, Mask, direction, pair


def test_the_concentration_is_zero_in_obstacles_and_outside() -> None:
    here = scene(agent(0, 0), arena=blocking((60, 64)))
    points = jnp.array([[60.0, 64.0], [61.0, 64.0], [60.4, 64.4], [-1.0, 64.0], [64.0, 127.1], [127.0, 127.0]])
    smells = np.asarray(here.smell(points)) > 0
    np.testing.assert_array_equal(smells, [False, True, False, False, False, True])
    np.testing.assert_allclose(here.raster(), here.smell(here.arena.raster()), rtol=1e-5)


def test_obstacles_are_found_in_an_arena_of_any_scale() -> None:
    mask = np.zeros((5, 9), bool)
    mask[1, 8] = True
    arena = Arena((-2.0, 10.0), (2.0, 12.0), jnp.asarray(mask), (5, 9))
    assert bool(arena.is_blocked(jnp.array([2.0, 10.5])))
    assert bool(arena.is_blocked(jnp.array([1.8, 10.7])))
    assert not bool(arena.is_blocked(jnp.array([1.7, 10.5])))
    np.testing.assert_array_equal(arena.cell(jnp.array([[-2.0, 12.0], [9.0, 9.0]])), [[0, 4], [8, 0]])


def test_bounds_belong_to_the_arena() -> None:
    assert bool(ARENA.contains(jnp.array([127.0, 0.0])))
    assert not bool(ARENA.contains(jnp.array([127.01, 0.0])))


def test_the_raster_has_row_0_at_the_lowest_y() -> None:
    raster = np.asarray(Arena((0.0, -1.0), (2.0, 1.0), None, (3, 5)).raster())
    np.testing.assert_allclose(raster[0, 0], [0, -1])
    np.testing.assert_allclose(raster[2, 1], [0.5, 1])


def test_distance_and_direction() -> None:
    assert float(scene(agent(61, 60)).distance) == 5
    np.testing.assert_allclose(direction(jnp.pi / 2 * jnp.arange(2.0)), [[1, 0], [0, 1]], atol=1e-6)


@pytest.mark.parametrize("point", [(1, 2), (1.0, 2.0), np.array([1, 2]), jnp.array([1, 2])])
def test_points_become_floats(point: object) -> None:
    assert pair(point).dtype == jnp.result_type(float)
    np.testing.assert_array_equal(pair(point), [1, 2])


def test_masks_are_equal_and_hash_by_content() -> None:
    array = np.eye(3, dtype=bool)
    mask, same, other = Mask(array, (3, 3)), Mask(array.tolist(), (3, 3)), Mask(~array, (3, 3))
    assert mask == same != other
    assert hash(mask) == hash(same) != hash(other)
    assert mask != array.tolist()
    array[0, 0] = False
    assert mask.array[0, 0]  # a copy
    with pytest.raises(ValueError, match="read-only"):
        mask.array[0, 0] = False


@pytest.mark.parametrize("array", [np.zeros((3, 4), bool), np.zeros((3, 3)), None, "wall"])
def test_a_mask_of_another_shape_or_type_is_rejected(array: object) -> None:
    with pytest.raises(ValidationError, match="obstacles"):
        Mask(array, (3, 3))
