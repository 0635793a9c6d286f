"""Compares eight devices with one: run by test_devices.py in a process that has eight."""

import sys
from typing import Any

import jax
import numpy as np
import pytest

from tropism import make, random_policy, rollout
from tropism.errors import ValidationError
from tropism.train import PPOConfig, Training, evaluate
from tropism.train.updates import run_updates

IDS = {"CartPole-v1": {"max_steps": 7}, "PlumeNavMeander-v0": {"max_steps": 5}}  # both restart within the rollout


def flatten(tree: Any) -> Any:
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)])


def compare_rollouts() -> None:
    for id, params in IDS.items():
        env, params = make(id, params=params)
        options: dict[str, Any] = {"params": params, "reproducible": id == "CartPole-v1"}
        one, eight = (rollout(env, random_policy(env), 0, 32, 12, **options, devices=d) for d in (None, "all"))
        assert eight.transitions is not None
        assert len(eight.transitions.reward.sharding.device_set) == 8
        assert eight.transitions.reward.addressable_shards[0].data.shape == (12, 4)
        assert int(eight.episodes.episodes) > 0
        np.testing.assert_allclose(flatten(eight), flatten(one), rtol=1e-5, atol=1e-5)
    env, params = make("CartPole-v1")
    with pytest.raises(ValidationError, match="num_envs is 12; expected a multiple of 8, the number of devices"):
        rollout(env, random_policy(env), 0, 12, 2, devices="all")
    with pytest.raises(ValidationError, match="auto or xla with several devices"):
        rollout(env, random_policy(env), 0, 16, 2, engine="fused", devices="all")


def compare_episodes() -> None:
    for id, params in IDS.items():
        env, params = make(id, params=params)
        policy = random_policy(env)
        one, eight = (evaluate("random", env, params, policy, 3, 30, devices=d) for d in (None, "all"))
        assert len(eight.returns) == 30  # not a multiple of eight
        np.testing.assert_array_equal(eight.lengths, one.lengths)
        np.testing.assert_allclose(eight.returns, one.returns, rtol=1e-5)
        if one.search is not None and eight.search is not None:
            np.testing.assert_allclose(eight.search.paths, one.search.paths, rtol=1e-5)
    env, params = make("SourceTracking1D-v0")
    with pytest.raises(ValidationError, match="devices"):
        evaluate("random", env, params, random_policy(env), 0, 8, devices="all")


def compare_training() -> None:
    """The first update to 1e-5, of one agent, and of two with continuous actions."""
    for id, seeds, recurrent in (("CartPole-v1", 1, True), ("Pendulum-v1", 2, False)):
        config = PPOConfig(total_steps=1024, num_envs=16, num_steps=16, hidden=16, recurrent=recurrent)
        training = Training(id, {}, {}, config, 0, seeds)
        algorithm = training.make_algorithm()
        start = training.start(algorithm)
        one, eight = (run_updates(algorithm, start, 1, devices)[0] for devices in (None, "all"))
        assert len(eight.rollout.episode_return.sharding.device_set) == 8
        assert np.abs(flatten(one.agent) - flatten(start.agent)).max() > 1e-3
        np.testing.assert_allclose(flatten(eight.agent), flatten(one.agent), atol=1e-5)
        np.testing.assert_allclose(flatten(eight.rollout), flatten(one.rollout), rtol=1e-5, atol=1e-5)
    odd = Training("CartPole-v1", {}, {}, PPOConfig(total_steps=1024, num_envs=12, num_steps=16), 0, 1)
    with pytest.raises(ValidationError, match="num_envs is 12; expected a multiple of 8"):
        run_updates(odd.make_algorithm(), odd.start(odd.make_algorithm()), 1, "all")


if __name__ == "__main__":
    {"rollout": compare_rollouts, "episodes": compare_episodes, "training": compare_training}[sys.argv[1]]()
