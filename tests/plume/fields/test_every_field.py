"""Requirements on every field."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.plume.fields import Field, Filaments, Gaussian, Meander, Puffs, share, synthetic_recording
from tropism.plume.wind import Switching

FIELDS: dict[str, Field] = {
    "gaussian": Gaussian(),
    "meander": Meander(),
    "puffs": Puffs(max_puffs=300),
    "switching puffs": Puffs(max_puffs=300, flow=Switching()),
    "filaments": Filaments(max_puffs=100, warmup=20),
    "movie": synthetic_recording(num_frames=5).field(),
    "shared": share(Meander(), random.key(0), 4, num_starts=2).with_source((3.0, 1.0)),
}


@pytest.fixture(params=list(FIELDS))
def field(request: pytest.FixtureRequest) -> Field:
    return FIELDS[request.param]


def points_near(field: Field) -> Any:
    return jnp.asarray(field.source) + jnp.array([[0.0, 0.0], [0.5, 0.1], [1.0, -0.2], [8.0, 3.0]])


@eqx.filter_jit
def advance(field: Field, key: Any) -> tuple[Any, Any]:
    """The state at the start and some steps later."""
    start_key, steps_key = random.split(key)
    start = field.init(start_key)
    keys = random.split(steps_key, 3)
    return start, jax.lax.scan(lambda state, k: (field.advance(k, state), None), start, keys)[0]


@eqx.filter_jit
def smell(field: Field, state: Any, points: Any) -> Any:
    return field.concentration(state, points)


@pytest.mark.slow
def test_any_number_of_points_at_once(field: Field) -> None:
    state, points = advance(field, random.key(0))[1], points_near(field)
    single = [float(smell(field, state, point)) for point in points]
    assert max(single) > 0
    np.testing.assert_allclose(smell(field, state, points), single, rtol=1e-5)
    np.testing.assert_allclose(smell(field, state, points[None]), [single], rtol=1e-5)
    assert field.wind(state, points[0]).shape == (2,)
    assert field.wind(state, points[None]).shape == (1, len(points), 2)


@pytest.mark.slow
def test_a_raster_is_the_concentration_at_its_points(field: Field) -> None:
    state = advance(field, random.key(0))[1]
    x, y = (
        jnp.asarray(field.source[side]) + offsets for side, offsets in enumerate((jnp.arange(7), jnp.arange(-2, 3)))
    )
    points = jnp.stack(jnp.broadcast_arrays(x[None, :], y[:, None]), -1)
    drawn = eqx.filter_jit(field.raster)(state, x, y)
    assert drawn.max() > 0
    np.testing.assert_allclose(drawn, smell(field, state, points), rtol=1e-4, atol=1e-6 * float(drawn.max()))


@pytest.mark.slow
def test_a_state_keeps_its_shape_under_scan(field: Field) -> None:
    start, later = advance(field, random.key(0))
    assert jax.tree.structure(start) == jax.tree.structure(later)
    for before, after in zip(jax.tree.leaves(start), jax.tree.leaves(later), strict=True):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)


def test_same_key_same_plume(field: Field) -> None:
    assert eqx.tree_equal(advance(field, random.key(5)), advance(field, random.key(5)))


@pytest.mark.slow
def test_numbers_can_be_vmapped_and_do_not_recompile(field: Field) -> None:
    """The field is reconstructed under the trace, as by an environment that randomises its params."""
    traces = 0
    points = points_near(field)
    numbers, rest = eqx.partition(field, lambda leaf: isinstance(leaf, float | jax.Array | np.ndarray))

    @jax.jit
    @jax.vmap
    def reached(leaves: Any) -> Any:
        nonlocal traces
        traces += 1
        rebuilt = dataclasses.replace(eqx.combine(leaves, rest))
        return rebuilt.concentration(rebuilt.advance(random.key(1), rebuilt.init(random.key(0))), points)

    def both(change: float) -> Any:
        """The original and the changed numbers."""
        return jax.tree.map(
            lambda leaf: jnp.stack([jnp.asarray(leaf), jnp.asarray(leaf * change if np.ndim(leaf) == 0 else leaf)]),
            numbers,
        )

    same = reached(both(1.0))
    np.testing.assert_allclose(same[0], same[1], rtol=1e-5)
    changed = reached(both(1.05))
    np.testing.assert_allclose(changed[0], same[0], rtol=1e-5)
    assert np.any(changed[1] != changed[0])
    assert traces == 1


def test_double_precision(field: Field) -> None:
    with jax.enable_x64(True):
        points = points_near(field).astype(jnp.float64)
        shape = jax.eval_shape(lambda key: field.concentration(advance(field, key)[1], points), random.key(0))
    assert shape.dtype == np.float64


@pytest.mark.parametrize("name", ["gaussian", "meander", "puffs", "switching puffs", "filaments"])
def test_equal_by_value_and_hashable(name: str) -> None:
    field = FIELDS[name]
    twin = dataclasses.replace(field)
    assert twin is not field
    assert twin == field
    assert hash(twin) == hash(field)
    assert dataclasses.replace(field, dt=0.123) != field  # pyright: ignore[reportCallIssue]
