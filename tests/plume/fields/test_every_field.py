"""What every field must do, whatever its equations."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.plume.fields import Field, Filaments, Gaussian, Meander, Puffs, share, synthetic
from tropism.plume.wind import Switching, Wandering

FIELDS: dict[str, Field] = {
    "gaussian": Gaussian(),
    "meander": Meander(),
    "puffs": Puffs(max_puffs=300),
    "switching puffs": Puffs(max_puffs=300, flow=Switching.many()),
    "wandering puffs": Puffs(max_puffs=300, flow=Wandering()),
    "filaments": Filaments(max_puffs=100, warmup=20),
    "movie": synthetic(num_frames=5).field(),
    "shared": share(Meander(), random.key(0), 4),
}


@pytest.fixture(params=list(FIELDS))
def field(request: pytest.FixtureRequest) -> Field:
    return FIELDS[request.param]


def points_near(field: Field) -> Any:
    return jnp.asarray(field.source) + jnp.array([[0.0, 0.0], [0.5, 0.1], [1.0, -0.2], [8.0, 3.0]])


@eqx.filter_jit
def advanced(field: Field, key: Any) -> tuple[Any, Any]:
    """The state at the start and some steps later."""
    start_key, steps_key = random.split(key)
    start = field.init(start_key)
    keys = random.split(steps_key, 3)
    return start, jax.lax.scan(lambda state, k: (field.advance(k, state), None), start, keys)[0]


@eqx.filter_jit
def smell(field: Field, state: Any, points: Any) -> Any:
    return field.concentration(state, points)


def test_any_number_of_points_at_once(field: Field) -> None:
    state, points = advanced(field, random.key(0))[1], points_near(field)
    single = [float(smell(field, state, point)) for point in points]
    assert max(single) > 0
    np.testing.assert_allclose(smell(field, state, points), single, rtol=1e-5)
    np.testing.assert_allclose(smell(field, state, points[None]), [single], rtol=1e-5)
    assert field.wind(state, points[0]).shape == (2,)
    assert field.wind(state, points[None]).shape == (1, len(points), 2)


def test_a_state_keeps_its_shape_so_that_it_scans(field: Field) -> None:
    start, later = advanced(field, random.key(0))
    assert jax.tree.structure(start) == jax.tree.structure(later)
    for before, after in zip(jax.tree.leaves(start), jax.tree.leaves(later), strict=True):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)


def test_same_key_same_plume(field: Field) -> None:
    assert eqx.tree_equal(advanced(field, random.key(5)), advanced(field, random.key(5)))


def test_numbers_map_and_never_compile_again(field: Field) -> None:
    traces = 0
    points = points_near(field)
    numbers, rest = eqx.partition(field, lambda leaf: isinstance(leaf, float | jax.Array | np.ndarray))

    @jax.jit
    def reached(leaves: Any, key: Any) -> Any:
        nonlocal traces
        traces += 1
        whole = eqx.combine(leaves, rest)
        return whole.concentration(whole.advance(key, whole.init(key)), points)

    plain = reached(numbers, random.key(2))
    reached(jax.tree.map(lambda leaf: leaf if np.ndim(leaf) else leaf * 1.01, numbers), random.key(2))
    assert traces == 1
    twice = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * 2), numbers)
    both = jax.vmap(reached, in_axes=(0, None))(twice, random.key(2))
    np.testing.assert_allclose(both, np.stack([plain] * 2), rtol=1e-2, atol=1e-3)


def test_constructed_inside_a_traced_function(field: Field) -> None:
    def smell_at_source(x: Any) -> Any:
        moved = dataclasses.replace(field, source=(x, field.source[1]))  # pyright: ignore[reportCallIssue]
        return moved.concentration(moved.init(random.key(0)), jnp.stack([x, jnp.asarray(field.source[1], x.dtype)]))

    here, beside = jax.jit(jax.vmap(smell_at_source))(field.source[0] + jnp.array([0.0, 1.0]))
    assert here > 0
    # The turbulent wind differs from place to place; every other plume just moves.
    np.testing.assert_allclose(beside, here, rtol=0.9 if isinstance(field, Filaments) else 1e-3)


def test_double_precision(field: Field) -> None:
    with jax.enable_x64(True):
        state = advanced(field, random.key(1))[1]
        strength = smell(field, state, points_near(field).astype(jnp.float64))
        assert strength.dtype == np.float64
        assert np.isfinite(strength).all()


@pytest.mark.parametrize("name", ["gaussian", "meander", "puffs", "switching puffs", "filaments"])
def test_equal_by_value_and_hashable(name: str) -> None:
    field = FIELDS[name]
    twin = dataclasses.replace(field)
    assert twin is not field
    assert twin == field
    assert hash(twin) == hash(field)
    assert dataclasses.replace(field, dt=0.123) != field  # pyright: ignore[reportCallIssue]
