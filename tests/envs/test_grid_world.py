"""GridWorld compared with a walk in plain Python, and PixelGridWorld with GridWorld."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import random

from tropism.envs.grid_world import ACTIONS, GridWorld, GridWorldParams
from tropism.envs.pixel_grid_world import PixelGridWorld
from tropism.errors import ValidationError

MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
SHORTEST = [1, 2] * 4
step = jax.jit(lambda env, state, action, params: env.step(random.key(0), state, action, params), static_argnums=0)


def walk(env: Any, actions: list[int]) -> list[Any]:
    params = env.default_params()
    obs, state = env.reset(random.key(0), params)
    steps: list[Any] = [(obs, state, 0.0, False, {})]
    for action in actions:
        steps.append(step(env, steps[-1][1], action, params))
    return steps


@given(st.sampled_from([2, 5, 8]), st.lists(st.integers(0, 3), max_size=40))
def test_every_walk_agrees_with_plain_python(size: int, actions: list[int]):
    row = col = 0
    for action, (obs, state, reward, done, info) in zip(actions, walk(GridWorld(size), actions)[1:], strict=True):
        down, right = MOVES[ACTIONS[action]]
        row, col = min(max(row + down, 0), size - 1), min(max(col + right, 0), size - 1)
        arrived = row == col == size - 1
        assert (int(state.row), int(state.col)) == (row, col)
        np.testing.assert_allclose(obs, [row / (size - 1), col / (size - 1)], rtol=1e-6)
        assert float(reward) == pytest.approx(1.0 if arrived else -0.01)
        assert bool(done) == bool(info["terminated"]) == arrived
        assert not info["truncated"]
        assert obs.dtype == reward.dtype == jnp.float32


def test_the_hundredth_step_truncates():
    steps = walk(GridWorld(), [0] * 100)
    assert not steps[99][3]
    assert steps[100][3]
    assert steps[100][4]["truncated"]
    assert not steps[100][4]["terminated"]


@given(st.lists(st.integers(0, 3), max_size=30))
def test_the_pixel_world_has_the_same_rules(actions: list[int]):
    for plain, pixel in zip(walk(GridWorld(4), actions), walk(PixelGridWorld(4), actions), strict=True):
        assert jax.tree.leaves(plain[1:]) == jax.tree.leaves(pixel[1:])


def test_pixels_show_agent_over_goal_on_black():
    start, *_, last = (np.asarray(entry[0]) for entry in walk(PixelGridWorld(), SHORTEST))
    expected = np.zeros((40, 40, 3), np.uint8)
    expected[:8, :8] = 255
    expected[32:, 32:] = (0, 255, 0)
    assert np.array_equal(start, expected)
    aside = np.asarray(walk(PixelGridWorld(), [1])[-1][0])
    expected[:8, :8] = 0
    expected[:8, 8:16] = 255
    assert np.array_equal(aside, expected)
    expected[:8, 8:16] = 0
    expected[32:, 32:] = 255
    assert np.array_equal(last, expected)
    space = PixelGridWorld().observation_space(GridWorldParams())
    assert space.shape == (40, 40, 3)
    assert start in space
    assert last in space


@pytest.mark.parametrize("world", [GridWorld, PixelGridWorld])
@pytest.mark.parametrize("size", [1, 0, -3, 2.5, 5.0, "5", None, True])
def test_an_invalid_size_is_rejected(world: Any, size: Any):
    with pytest.raises(ValidationError, match="size"):
        world(size=size)


def test_equal_sizes_are_equal_environments():
    assert GridWorld(8) == GridWorld(size=np.int64(8))
    assert hash(GridWorld(8)) == hash(GridWorld(np.int64(8)))
    assert GridWorld(8) != GridWorld()
    assert GridWorld(5) == GridWorld()
    assert PixelGridWorld(8) != GridWorld(8)


def test_it_runs_under_vmap_and_scan():
    env, params = GridWorld(), GridWorldParams()
    _, states = jax.vmap(env.reset, (0, None))(random.split(random.key(0), 3), params)

    def move(states: Any, action: Any) -> tuple[Any, Any]:
        _, states, reward, _, _ = jax.vmap(env.step, (None, 0, None, None))(random.key(0), states, action, params)
        return states, reward

    _, rewards = jax.lax.scan(move, states, jnp.array(SHORTEST))
    np.testing.assert_allclose(rewards, np.array([[-0.01] * 3] * 7 + [[1.0] * 3]))


def test_words_are_parsed_as_moves_and_the_position_is_described():
    env, params = GridWorld(), GridWorldParams()
    assert [env.parse(word, params) for word in ACTIONS] == [0, 1, 2, 3]
    assert env.parse("DOWN.", params) == PixelGridWorld().parse("2", params) == 2
    with pytest.raises(ValidationError, match=r"'north'.*up, right, down, left"):
        env.parse("north", params)
    obs, state, *_ = walk(env, [2, 2, 1])[-1]
    words = env.describe(jax.tree.map(np.asarray, state), np.asarray(obs), params)
    assert "row 2, column 1" in words
    assert "goal is at row 4, column 4" in words
    assert "Step 3 of 100" in words
