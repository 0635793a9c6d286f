"""A shared realisation compared with its field."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.fields import Meander, Puffs, share

POINTS = jnp.array([[0.1, 0.0], [0.3, 0.02], [0.5, -0.1]])


@pytest.mark.slow
def test_it_is_the_field_advanced_step_by_step() -> None:
    field = Puffs(max_puffs=200)
    shared = share(field, random.key(0), 6)
    start_key, steps_key = random.split(random.key(0))
    advance = jax.jit(field.advance)
    state, now = jax.jit(field.init)(start_key), shared.init(random.key(9))
    for key in random.split(steps_key, 6):
        np.testing.assert_allclose(shared.concentration(now, POINTS), field.concentration(state, POINTS), rtol=1e-4)
        np.testing.assert_array_equal(shared.wind(now, POINTS), field.wind(state, POINTS))
        state, now = advance(key, state), shared.advance(random.key(8), now)
    assert int(now) == 5  # the last one stays: the plume does not jump


def test_episodes_begin_at_one_of_the_first_frames() -> None:
    shared = share(Meander(), random.key(0), 7, num_starts=4)
    begins = np.asarray(jax.vmap(shared.init)(random.split(random.key(1), 500)))
    assert set(begins.tolist()) == set(range(4))
    assert int(share(Meander(), random.key(0), 7).init(random.key(1))) == 0


def test_there_are_not_more_starts_than_frames() -> None:
    with pytest.raises(ValidationError, match="num_starts"):
        share(Meander(), random.key(0), 3, num_starts=4)


def test_moving_the_source_moves_the_whole_plume() -> None:
    shared = share(Meander((0.0, 0.0)), random.key(0), 3)
    points = jnp.array([[3.0, 1.0], [20.0, -4.0]])
    state = shared.init(random.key(0))
    moved = shared.with_source((5.0, 2.0))
    np.testing.assert_allclose(
        moved.concentration(state, points + jnp.array([5.0, 2.0])), shared.concentration(state, points), rtol=1e-4
    )


@pytest.mark.slow
def test_many_agents_read_one_plume() -> None:
    shared = share(Puffs(max_puffs=200), random.key(0), 6)
    states = jax.vmap(shared.init)(random.split(random.key(1), 4))
    smells = jax.jit(jax.vmap(lambda state: shared.concentration(state, POINTS)))(states)
    for state, smell in zip(states, smells, strict=True):
        np.testing.assert_allclose(smell, shared.concentration(state, POINTS), rtol=1e-5)


@pytest.mark.parametrize("num_frames", [0, -1, True])
def test_at_least_one_frame(num_frames: int) -> None:
    with pytest.raises(ValidationError, match="num_frames"):
        share(Meander(), random.key(0), num_frames)
