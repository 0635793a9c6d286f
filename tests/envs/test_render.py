"""Pictures of every environment: shape, dtype, change with the state, jit and vmap."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.ids import PURE, mark_slow

from tropism import Session, make
from tropism.core.environment import Environment
from tropism.core.spaces import Box, Discrete
from tropism.drawing import canvas as draw
from tropism.envs.acrobot import Acrobot
from tropism.envs.cartpole import CartPole
from tropism.envs.connect_four import ConnectFour, drop
from tropism.envs.grid_world import GridWorld
from tropism.envs.mountain_car import MountainCar
from tropism.envs.mountain_car_continuous import MountainCarContinuous
from tropism.envs.pendulum import Pendulum
from tropism.envs.pixel_grid_world import PixelGridWorld
from tropism.plume import picture

one = jnp.ones((), jnp.int32)
CASES: list[tuple[Environment, tuple[int, int], dict[str, Any]]] = [
    (CartPole(), (400, 600), {"theta": jnp.float32(0.2)}),
    (CartPole(), (400, 600), {"x": jnp.float32(1.0)}),
    (Pendulum(), (400, 400), {"theta": jnp.float32(0.5)}),
    (MountainCar(), (400, 600), {"position": jnp.float32(0.2)}),
    (MountainCarContinuous(), (400, 600), {"position": jnp.float32(-1.0)}),
    (Acrobot(), (400, 400), {"theta_1": jnp.float32(1.0)}),
    (Acrobot(), (400, 400), {"theta_2": jnp.float32(1.0)}),
    (GridWorld(), (400, 400), {"row": one}),
    (PixelGridWorld(size=3), (399, 399), {"col": one}),
    (ConnectFour(), (384, 448), {"board": drop(np.zeros((6, 7), np.int8), 3, 1)}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "size", "change"), CASES, ids=[f"{type(env).__name__} {next(iter(change))}" for env, _, change in CASES]
)
def test_the_picture_changes_with_the_state(env: Environment, size: tuple[int, int], change: dict[str, Any]):
    params = env.default_params()
    _, state = env.reset(random.key(0), params)
    other = replace(state, **change)
    plain = np.asarray(env.render(state, params))
    assert plain.shape == (*size, 3)
    assert plain.dtype == np.uint8
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), state, other)
    pictures = np.asarray(jax.jit(jax.vmap(env.render, (0, None)))(both, params))
    # Compiled and not, a smoothed edge may round to the next shade.
    assert np.abs(pictures[0].astype(int) - plain).max() <= 1
    changed = (np.abs(pictures[0].astype(int) - pictures[1]).max(axis=-1) > 30).mean()
    assert 0.001 < changed < 0.3


def color_centre(env: Environment, change: dict[str, Any], color: tuple[int, int, int]) -> tuple[float, float]:
    """The mean column and row of a colour in the picture."""
    params = env.default_params()
    _, state = env.reset(random.key(0), params)
    picture = np.asarray(env.render(replace(state, **change), params))
    rows, columns = np.nonzero((picture == color).all(axis=-1))
    return float(columns.mean()), float(rows.mean())


@pytest.mark.slow
def test_left_is_left_and_up_is_up():
    brown, red, blue = (176, 122, 74), (224, 49, 49), (34, 94, 168)
    at_rest = {"x": jnp.float32(0), "theta": jnp.float32(0.2)}
    assert color_centre(CartPole(), at_rest, brown)[0] > 305
    assert color_centre(Pendulum(), {"theta": jnp.float32(0.5)}, red)[0] < 195
    assert color_centre(Pendulum(), {"theta": jnp.float32(0.5)}, red)[1] < 195
    assert color_centre(Acrobot(), {"theta_1": jnp.float32(0.5)}, blue)[0] > 205
    assert color_centre(Acrobot(), {"theta_1": jnp.float32(0.5)}, blue)[1] > 205
    assert color_centre(MountainCar(), {"position": jnp.float32(0.5)}, blue)[0] > 500
    assert color_centre(GridWorld(), {"row": one * 0, "col": one * 4}, blue) == pytest.approx((359.5, 39.5), abs=1)
    dropped = drop(np.zeros((6, 7), np.int8), 6, 1)
    assert color_centre(ConnectFour(), {"board": dropped}, red) == pytest.approx((415.5, 351.5), abs=1)


@pytest.mark.parametrize("id", mark_slow(["PlumeNav-v0", "PlumeNavMeander-v0", "PlumeNavPuffs-v0", "GridWorld-v0"]))
def test_the_agent_is_drawn_where_its_spot_is(id: str):
    color = draw.BLUE if id == "GridWorld-v0" else picture.AGENT
    with Session(*make(id)) as session:
        session.reset(seed=4)
        for action in (1, 2, 1):
            session.step(action if isinstance(session.action_space, Discrete) else [0.1, 1.0])
        drawn = session.render()
        x, y = session.agent_position_in_image() or (0.0, 0.0)
        assert tuple(drawn[int(y * drawn.shape[0]), int(x * drawn.shape[1])]) == color


@pytest.mark.parametrize("id", mark_slow(PURE))
def test_either_every_entry_of_a_vector_has_a_word_or_none_has(id: str):
    env, params = make(id)
    words = env.language.observations
    assert len(set(words)) == len(words)
    assert words == () or env.observation_space(params).shape == (len(words),)


@pytest.mark.parametrize("id", mark_slow(PURE))
def test_every_action_that_has_words_is_understood_by_them(id: str):
    env, params = make(id)
    space, words = env.action_space(params), env.language.actions
    if isinstance(space, Discrete) and words:
        assert [env.parse(word.upper(), params) for word in words] == list(range(space.n))
    elif isinstance(space, Box):
        assert len(words) == space.shape[0]
