"""A real Ray cluster on this machine."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from tests.scale import jobs
from tests.scale.jobs import CARTPOLE, SMALL, WALK, assert_equal, kill_worker

from tropism import random_policy
from tropism.core.rollout.policy import HostFunctionPolicy
from tropism.errors import ProcessError
from tropism.record import Reader
from tropism.scale import Ray, RayVectorEnv, evaluate, record, sweep
from tropism.scale.sweeps import grid

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Ray]:
    cluster = Ray(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
    yield cluster
    cluster.close()


def actor_pids(name: str) -> list[int]:
    """The processes of actors of this class that are at work; Ray names a process by what it runs."""
    pids: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_text()
        except OSError:
            continue
        pids += [int(folder.name)] if title.startswith(f"ray::{name}") else []
    return pids


def test_ten_thousand_episodes_with_an_actor_killed(cluster: Ray) -> None:
    policy = random_policy(*CARTPOLE)
    kill = kill_worker(lambda: actor_pids("ShardActor")[0], stop_after=3000, kill_after=5000)
    disturbed = evaluate("random", *CARTPOLE, policy, 0, 10_000, kill, on=cluster)
    assert cluster.replaced == 1
    assert_equal(disturbed, evaluate("random", *CARTPOLE, policy, 0, 10_000))


def test_host_policies_recordings_and_sweeps(cluster: Ray, tmp_path: Path) -> None:
    on_ray = evaluate("walk", *CARTPOLE, WALK, 0, 20, on=cluster, max_steps=30)
    assert_equal(on_ray, evaluate("walk", *CARTPOLE, WALK, 0, 20, max_steps=30))
    with pytest.raises(ZeroDivisionError, match="a fault of the policy"):
        evaluate("fail", *CARTPOLE, HostFunctionPolicy(jobs.fail), 0, 4, on=cluster)
    totals = record(*CARTPOLE, WALK, tmp_path / "ray", 3, 20, 50, on=cluster)
    assert totals == record(*CARTPOLE, WALK, tmp_path / "serial", 3, 20, 50)
    for mine, yours in zip(Reader(tmp_path / "ray"), Reader(tmp_path / "serial"), strict=True):
        np.testing.assert_array_equal(mine.observations, yours.observations)
    trainings = grid(SMALL, {"learning_rate": [1e-3, 3e-4]})
    assert sweep(trainings, tmp_path / "a", on=cluster) == sweep(trainings, tmp_path / "b")


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for mine, yours in zip(one, other, strict=True):
            assert_same(mine, yours)
    else:
        np.testing.assert_array_equal(one, other)


def test_a_vector_environment_equals_the_local_one(cluster: Ray) -> None:
    make_env = partial(gymnasium.make, "tropism.gym:tropism/CartPole-v1")
    local = SyncVectorEnv([make_env] * 3)
    local.action_space.seed(0)
    with closing(local), closing(RayVectorEnv(make_env, 3, actors=2)) as remote:
        assert remote.action_space == local.action_space
        assert remote.observation_space == local.observation_space
        assert remote.metadata == local.metadata
        assert_same(remote.reset(seed=4), local.reset(seed=4))
        for _ in range(40):  # episodes restart on the way
            actions = local.action_space.sample()
            assert_same(remote.step(actions), local.step(actions))


def test_a_vector_environment_recovers_from_a_dead_actor(cluster: Ray) -> None:
    make_env = partial(gymnasium.make, "tropism.gym:tropism/Echo-v0")
    local = SyncVectorEnv([make_env] * 2)
    with closing(local), closing(RayVectorEnv(make_env, 2, actors=2)) as remote:
        first = remote.reset(seed=0)
        assert_same(first, local.reset(seed=0))
        actions = local.action_space.sample()
        assert_same(remote.step(actions), local.step(actions))
        os.kill(actor_pids("VectorActor")[0], signal.SIGKILL)
        with pytest.raises(ProcessError, match=r"call reset\(\)"):
            remote.step(remote.action_space.sample())
        assert_same(remote.reset(seed=0), first)
