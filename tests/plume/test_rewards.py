"""Rewards, by hand."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.plume.places import agent, scene

from tropism.plume.rewards import Approach, ConcentrationGain, Reward, Singh, SparseGoal, StepPenalty, Sum
from tropism.plume.scene import Agent, Scene

FAR, NEAR = scene(agent(64, 84)), scene(agent(64, 74))  # 20 and 10 from the source
SMELL_FAR, SMELL_NEAR = np.exp(-400 / 800), np.exp(-100 / 800)


def worth(reward: Reward, before: Scene = FAR, after: Scene = NEAR, reached: bool = False) -> float:
    return float(reward(before, jnp.int32(0), after, jnp.bool_(reached)))


def lost(here: Scene) -> Scene:
    who = here.agent
    return scene(Agent.at(who.xy, who.heading, who.velocity, jnp.bool_(True)))


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
    np.testing.assert_allclose(worth(reward), expected, rtol=1e-5)


def test_the_goal() -> None:
    assert worth(SparseGoal(), reached=True) == 1
    assert worth(SparseGoal(3.0), reached=True) == 3
    np.testing.assert_allclose(worth(Singh(), reached=True), 100 + 10 - 5 / 300, rtol=1e-6)


def test_who_strays_pays_unless_home() -> None:
    np.testing.assert_allclose(worth(Singh(), after=lost(NEAR)), -10 + 10 - 5 / 300, rtol=1e-3)
    np.testing.assert_allclose(worth(Singh(), after=lost(NEAR), reached=True), 110 - 5 / 300, rtol=1e-6)


def test_shaping_adds_up_to_nothing_on_a_round_trip() -> None:
    there_and_back: Any = [worth(Approach(), FAR, NEAR), worth(Approach(), NEAR, FAR)]
    assert sum(there_and_back) == 0
