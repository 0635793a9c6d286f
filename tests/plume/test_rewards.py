"""Rewards compared with values computed by hand."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.plume.places import agent, scene

from tropism.plume.rewards import Approach, ConcentrationGain, Reward, Singh, SparseGoal, StepPenalty, Sum
from tropism.plume.scene import AgentPose, Scene

FAR, NEAR = scene(agent(64, 84)), scene(agent(64, 74))  # 20 and 10 from the source
SMELL_FAR, SMELL_NEAR = np.exp(-400 / 800), np.exp(-100 / 800)


def reward_of(reward: Reward, before: Scene = FAR, after: Scene = NEAR, reached: bool = False) -> float:
    return float(reward(before, jnp.int32(0), after, jnp.bool_(reached)))


def absorb(scene_: Scene) -> Scene:
    pose = scene_.agent
    return scene(AgentPose.at(pose.xy, pose.heading, pose.velocity, jnp.bool_(True)))


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (SparseGoal(), 0.0),
        (StepPenalty(0.25), -0.25),
        (ConcentrationGain(2.0), 2 * (SMELL_NEAR - SMELL_FAR)),
        (Approach(), 10.0),
        (Approach(scale=0.5, discount=0.9), 0.5 * (20 - 9)),
        (Singh(), 10 - 5 / 300),
        (Sum((Approach(), StepPenalty(1.0))), 9.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_step_nearer(reward: Reward, expected: float) -> None:
    np.testing.assert_allclose(reward_of(reward), expected, rtol=1e-5)


def test_the_goal() -> None:
    assert reward_of(SparseGoal(), reached=True) == 1
    assert reward_of(SparseGoal(3.0), reached=True) == 3
    np.testing.assert_allclose(reward_of(Singh(), reached=True), 100 + 10 - 5 / 300, rtol=1e-6)


def test_leaving_the_arena_is_penalised_except_at_the_goal() -> None:
    np.testing.assert_allclose(reward_of(Singh(), after=absorb(NEAR)), -10 + 10 - 5 / 300, rtol=1e-3)
    np.testing.assert_allclose(reward_of(Singh(), after=absorb(NEAR), reached=True), 110 - 5 / 300, rtol=1e-6)


def test_shaping_sums_to_zero_on_a_round_trip() -> None:
    there_and_back: Any = [reward_of(Approach(), FAR, NEAR), reward_of(Approach(), NEAR, FAR)]
    assert sum(there_and_back) == 0
