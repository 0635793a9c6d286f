"""Errors for invalid user parts."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.gym.own_parts import (
    SMALL,
    Calls,
    FlickerPlume,
    FourWayMotion,
    GustyWind,
    HungryReward,
    PlainSensor,
    RoundPlume,
    SlipperyMotion,
    SmoothedSensor,
    SparseReward,
    make_all_user,
)

from tropism import EnvironmentState, ValidationError
from tropism.gym import PlumeEnv
from tropism.plume.fields import Meander
from tropism.plume.sensors import FullField


def make_broken(method: str, value: Any, at: int) -> Any:
    """A class whose method returns `value` from call number `at` on."""
    kind: Any = {
        "get_observation": PlainSensor,
        "compute_reward": SparseReward,
        "process_action": FourWayMotion,
        "sample": RoundPlume,
    }[method]
    count = iter(range(100))

    def answer(self: Any, *args: Any, **named: Any) -> Any:
        return value if next(count) >= at else getattr(kind, method)(self, *args, **named)

    return type("Broken", (kind,), {method: answer})()


@pytest.mark.parametrize(
    ("value", "shown"),
    [([2.0], "2.0"), (np.array([np.nan]), "nan"), ([0.1, 0.2], "0.2"), (None, "None"), ("much", "much")],
)
def test_an_error_names_an_observation_outside_its_space_and_its_step(value: Any, shown: str):
    env = PlumeEnv(**SMALL, sensor_model=make_broken("get_observation", value, at=2))
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ValidationError, match=r"Broken.get_observation returned at step 2.*" + shown):
        env.step(0)
    at_once = PlumeEnv(**SMALL, sensor_model=make_broken("get_observation", value, at=0))
    with pytest.raises(ValidationError, match="at step 0"):
        at_once.reset(seed=0)
    assert at_once.lifecycle is EnvironmentState.CREATED


@pytest.mark.parametrize("value", [np.nan, np.inf, None, "1", [1.0, 2.0]])
def test_a_reward_that_is_not_finite_is_rejected(value: Any):
    env = PlumeEnv(**SMALL, reward_fn=make_broken("compute_reward", value, at=1))
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ValidationError, match=r"Broken.compute_reward returned at step 2.*finite number"):
        env.step(0)


@pytest.mark.parametrize(
    "value",
    [None, SimpleNamespace(position=(32, 0)), SimpleNamespace(position=(np.nan, 0)), SimpleNamespace(position=3)],
)
def test_an_agent_outside_the_grid_is_rejected(value: Any):
    env = PlumeEnv(**SMALL, action_model=make_broken("process_action", value, at=0))
    _, before = env.reset(seed=0)
    with pytest.raises(ValidationError, match=r"Broken.process_action returned at step 1.*position between"):
        env.step(0)
    assert env.session.timestep.info["agent_xy"] == before["agent_xy"]
    assert env.session.step_count == 0


def test_a_concentration_that_is_not_finite_is_rejected():
    env = PlumeEnv(**SMALL, plume=make_broken("sample", np.nan, at=0))
    with pytest.raises(ValidationError, match=r"Broken.sample returned at step 0"):
        env.reset(seed=0)


def test_a_rejected_action_is_not_passed_to_the_parts():
    calls: Calls = []
    env = make_all_user(calls)
    env.reset(seed=0)
    env.action_model.validate_action = lambda action: action != 2
    calls.clear()
    for action in (2, 9, None, 1.5):
        with pytest.raises(ValidationError, match="action"):
            env.step(action)
    assert calls == []
    assert env.session.step_count == 0


@pytest.mark.parametrize(
    ("argument", "kind", "missing"),
    [
        ("plume", FlickerPlume, "sample"),
        ("wind_field", GustyWind, "sample"),
        ("sensor_model", SmoothedSensor, "get_observation"),
        ("sensor_model", SmoothedSensor, "observation_space"),
        ("action_model", SlipperyMotion, "process_action"),
        ("action_model", SlipperyMotion, "action_space"),
        ("reward_fn", HungryReward, "compute_reward"),
    ],
)
def test_an_error_names_the_missing_member(argument: str, kind: Any, missing: str):
    has = {name: value for name, value in vars(kind).items() if name not in (missing, "__init__", "__dict__")}
    spaces_too = {"observation_space": spaces.Discrete(2), "action_space": spaces.Discrete(2)}
    lacking: Any = type("Lacking", (), {**spaces_too, **has})
    if missing in spaces_too:
        delattr(lacking, missing)
    with pytest.raises(ValidationError, match=rf"{argument} Lacking has no (method|attribute) {missing}"):
        PlumeEnv(**SMALL, **{argument: lacking()})
    with pytest.raises(ValidationError, match="an instance, not the class"):
        PlumeEnv(**SMALL, **{argument: kind})


def test_an_invalid_space_is_rejected():
    with pytest.raises(ValidationError, match=r"action_model\.action_space"):
        PlumeEnv(action_model=SimpleNamespace(action_space=4, process_action=print))


def test_a_field_with_its_own_wind_accepts_no_other():
    with pytest.raises(ValidationError, match="Meander has its own wind"):
        PlumeEnv(**SMALL, plume=Meander(source=(4.0, 12.0)), wind_field=GustyWind())


def test_a_field_array_of_another_shape_is_rejected():
    class Small(RoundPlume):
        field_array = np.zeros((3, 3))

    with pytest.raises(ValidationError, match=r"Small\.field_array(.|\n)*\(24, 32\)"):
        PlumeEnv(**SMALL, plume=Small(), sensor_model=FullField()).reset(seed=0)
