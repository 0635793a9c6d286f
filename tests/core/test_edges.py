"""Interactions between modules of core."""

from typing import Any

import jax
import numpy as np
import pytest
from tests.core.lines import HostLine

from tropism import Session, ValidationError, make, randomize_params, register, rollout
from tropism.core.episode import small_seed
from tropism.core.rollout.policy import random_policy
from tropism.core.spaces import Box, Discrete
from tropism.envs.cartpole import CartPole
from tropism.envs.grid_world import GridWorld


def test_changing_an_observation_of_a_host_session_does_not_affect_its_snapshot() -> None:
    session = Session(HostLine())
    obs = session.reset(seed=0).obs
    np.asarray(obs)[...] = 99
    twin = session.fork()
    assert not np.array_equal(twin.timestep.obs, obs)


def test_describe_uses_the_params_of_the_episode() -> None:
    session = Session(CartPole())
    session.reset(seed=0, options={"params": {"x_threshold": 1.25}})
    assert "±1.25" in session.describe()
    drawn = Session(randomize_params(CartPole(), {"x_threshold": (1.0, 1.5)}))
    drawn.reset(seed=0)
    assert "±2.4" not in drawn.describe()


def test_two_randomizations_draw_different_numbers() -> None:
    env = randomize_params(randomize_params(CartPole(), {"gravity": (0.0, 1.0)}), {"masspole": (0.0, 1.0)})
    _, state = env.reset(jax.random.key(0), env.default_params())
    assert state.memory["masspole"] != state.inner.memory["gravity"]


@pytest.mark.parametrize("change", [{"gravity": np.array([1.0, 2.0])}])
def test_options_that_change_the_structure_of_params_are_rejected(change: dict[str, object]) -> None:
    session = Session(CartPole())
    session.reset(seed=0)
    with pytest.raises(ValidationError, match="the same structure and shapes"):
        session.reset(options={"params": change})
    session.step(1)


def test_a_component_cannot_be_replaced_by_a_number() -> None:
    with pytest.raises(ValidationError, match="a component like Gaussian"):
        make("PlumeNav-v0", params={"field": 3})


@pytest.mark.usefixtures("separate_registry")
def test_a_registered_class_with_a_required_argument_names_it() -> None:
    class Maze(GridWorld):
        def __init__(self, size: int):
            super().__init__(size)

    register("Maze-v0", Maze, force=True)
    with pytest.raises(ValidationError, match="'size', which Maze-v0 needs"):
        make("Maze-v0")
    session = Session(Maze(3))
    session.reset(seed=0)
    assert session.snapshot()


def test_none_is_not_an_environment() -> None:
    with pytest.raises(ValidationError, match="an Environment"):
        register("Nothing-v0", None)


def test_a_numpy_integer_is_a_valid_size(untyped: None) -> None:
    env = GridWorld()
    sizes: Any = np.int64(4), np.int32(3)
    transitions: Any = rollout(env, random_policy(env), jax.random.key(0), *sizes).transitions
    assert transitions.obs.shape[:2] == (3, 4)


def test_a_traced_discrete_space_rejects_non_integers() -> None:
    def contains(n: jax.Array) -> tuple[object, object]:
        return Discrete(n).contains(1.5), Discrete(n).contains(None)

    assert jax.jit(lambda n: contains(n))(3) == (False, False)


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_a_seed_of_32_bits_is_unchanged(seed: int) -> None:
    assert small_seed(seed) == seed
    assert small_seed(seed + 2**40) < 2**32


def test_a_box_of_all_integers_contains_its_limits() -> None:
    assert Box(-np.inf, np.inf, (2,), np.int32).contains(np.array([-(2**31), 2**31 - 1], np.int32))
