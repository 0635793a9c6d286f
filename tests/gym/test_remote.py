"""A vector of served environments returns the same arrays as a local one."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from tests.serve.running import Running, running

from tropism import gym, make
from tropism.errors import StateError, ValidationError
from tropism.gym import GymVectorEnv, RemoteVectorEnv

COUNT, STEPS, SEED = 5, 60, 3


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("CartPole-v1", "GridWorld-v0", "ConnectFour-v0") as started:
        yield started


def same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(mine).dtype == np.asarray(theirs).dtype


def plain(infos: dict[str, Any]) -> dict[str, Any]:
    """Observations of ended episodes as lists: an object array is not a leaf."""
    return {name: list(value) if name == "final_obs" else value for name, value in infos.items()}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("id", ["CartPole-v1", "ConnectFour-v0"])
def test_the_same_seeds_and_actions_give_the_same_arrays(server: Running, id: str, mode: str):
    local = GymVectorEnv(*make(id)[:1], COUNT, autoreset_mode=mode)
    remote = RemoteVectorEnv(f"{server.url}/envs/{id}", COUNT, autoreset_mode=mode)
    assert remote.metadata["autoreset_mode"] == AutoresetMode[mode.upper()]
    assert remote.single_observation_space == local.single_observation_space
    assert remote.action_space == local.action_space
    (obs, infos), (far, far_infos) = local.reset(seed=SEED), remote.reset(seed=SEED)
    same(obs, far)
    same(infos, far_infos)
    local.action_space.seed(SEED)
    ends = 0
    for _ in range(STEPS):
        actions = local.action_space.sample()
        *arrays, infos = local.step(actions)
        *others, far_infos = remote.step(actions)
        same(arrays, others)
        same(plain(infos), plain(far_infos))
        ends += int(np.sum(arrays[2] | arrays[3]))
    assert ends >= COUNT
    same(local.reset(), remote.reset())  # the next episodes, drawn from the seeds before
    remote.close()


def test_finished_environments_are_reset_by_mask_without_autoreset(server: Running):
    local = GymVectorEnv(*make("CartPole-v1")[:1], COUNT, autoreset_mode="disabled")
    remote = RemoteVectorEnv(f"{server.url}/envs/CartPole-v1", COUNT, autoreset_mode="disabled")
    same(local.reset(seed=[9, 8, 7, 6, 5]), remote.reset(seed=[9, 8, 7, 6, 5]))
    done = np.zeros(COUNT, bool)
    while not done.any():
        actions = np.ones(COUNT, np.int64)
        *arrays, infos = local.step(actions)
        *others, far_infos = remote.step(actions)
        same((arrays, infos), (others, far_infos))
        done = arrays[2] | arrays[3]
    with pytest.raises(StateError):
        remote.step(np.ones(COUNT, np.int64))
    same(local.reset(options={"reset_mask": done}), remote.reset(options={"reset_mask": done}))
    remote.close()


def test_misuse_is_rejected(server: Running):
    remote = RemoteVectorEnv(f"{server.url}/envs/GridWorld-v0", COUNT)
    with pytest.raises(StateError, match="reset"):
        remote.step(np.zeros(COUNT, np.int64))
    with pytest.raises(ValidationError, match="reset_mask"):
        remote.reset(options={"params": {}})
    with pytest.raises(ValidationError, match="each"):
        remote.reset(seed=[1, None, 2, 3, 4])
    remote.reset(seed=1)
    with pytest.raises(ValidationError):
        remote.step(np.full(COUNT, 9))
    remote.close()
    with pytest.raises(StateError, match="closed"):
        remote.reset()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Remot"):
        _ = gym.Remot  # pyright: ignore[reportAttributeAccessIssue]
