"""Laws of a search with user parts: it equals the compiled search, and no part can damage the session."""

import copy
import pickle
from itertools import combinations
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from tests.gym.own_parts import (
    ACTIONS,
    SMALL,
    FourWayMotion,
    PlainSensor,
    RoundPlume,
    SlipperyMotion,
    SmoothedSensor,
    make_all_user,
    make_resetting,
    play,
)

from tropism import EnvironmentState, Session, StateError, ValidationError, register
from tropism.core.resolve import resolve_environment
from tropism.core.wrapper import Wrapper
from tropism.errors import ObservationError
from tropism.gym import PlumeEnv, to_gymnasium
from tropism.plume import Field
from tropism.plume.rewards import Reward


class Fading(Field):
    """A field whose strength depends on the step."""

    source: Any = (16.0, 12.0)

    def init(self, key: Any) -> Any:
        return jnp.int32(0)

    def advance(self, key: Any, state: Any) -> Any:
        return state + 1

    def concentration(self, state: Any, xy: Any) -> Any:
        return jnp.exp(-jnp.sum((xy - jnp.stack(self.source)) ** 2, -1) / 200 - state / 10)

    def wind(self, state: Any, xy: Any) -> Any:
        return jnp.zeros_like(xy)


class FadingPlume:
    """`Fading`, written by a user."""

    step = 0

    def reset(self, seed: int) -> None:
        self.step = 0

    def advance_to_step(self, k: int) -> None:
        self.step = k

    def sample(self, x: Any, y: Any, t: Any = None) -> float:
        return float(np.exp(-((x - 16) ** 2 + (y - 12) ** 2) / 200 - self.step / 10))


class Mixture(Reward):
    """Depends on the places before and after the step, the action, the goal, and the plume after the step."""

    def __call__(self, before: Any, action: Any, after: Any, reached: Any) -> Any:
        place = before.agent.xy[0] + 100 * after.agent.xy[0] + 1000 * action + 10000 * reached
        return place / 100000 + after.smell(after.agent.xy)


class MixtureReward:
    """`Mixture`, written by a user."""

    def compute_reward(self, prev_state: Any, action: Any, next_state: Any, plume_field: Any) -> float:
        place = prev_state.position.x + 100 * next_state.position.x + 1000 * action + 10000 * next_state.goal_reached
        return place / 100000 + plume_field.sample(*next_state.position)


LIBRARY: dict[str, Any] = {"plume": Fading(), "reward_fn": Mixture()}
USER: dict[str, Any] = {
    "plume": FadingPlume,
    "sensor_model": PlainSensor,
    "action_model": FourWayMotion,
    "reward_fn": MixtureReward,
}
SUBSETS = [
    pytest.param(names, id=",".join(names), marks=pytest.mark.slow if size in (2, 3) else ())
    for size in (1, 2, 3, 4)
    for names in combinations(USER, size)
]


def numbers(timestep: Any) -> Any:
    """A timestep as numbers, without the heading, about which a user's motion decides."""
    info = [value for name, value in sorted(timestep[-1].items()) if name not in ("heading", "seed")]
    return [float(value) for part in (*timestep[:-1], *info) for value in np.ravel(part)]


@pytest.mark.parametrize("names", SUBSETS)
def test_user_parts_equal_to_library_parts_give_the_compiled_search(names: tuple[str, ...]):
    """The plume fades, so a reward or an observation before it advances, or before the agent moves, is different."""
    own = {name: USER[name]() for name in names}
    place: dict[str, Any] = {**SMALL, "start_location": (12, 12)}
    env, compiled = PlumeEnv(**{**place, **LIBRARY, **own}), PlumeEnv(**place, **LIBRARY)
    assert compiled.session.env.pure
    assert numbers(env.reset(seed=0)) == pytest.approx(numbers(compiled.reset(seed=0)), abs=1e-6)
    for action in (0, 2, 3, 1, 1, 1, 1):
        assert numbers(env.step(action)) == pytest.approx(numbers(compiled.step(action)), abs=1e-6)
    assert env.lifecycle is EnvironmentState.TERMINATED


class Clearing:
    """A motion that changes the action it gets."""

    action_space = spaces.Box(-2, 2, (2,))

    def process_action(self, action: Any, agent: Any, grid_size: Any) -> Any:
        agent.position = tuple(np.clip(np.add(agent.position, action), 0, 20).tolist())
        action[:] = 0
        return agent


class ClearingReward:
    def compute_reward(self, prev_state: Any, action: Any, next_state: Any, plume_field: Any) -> float:
        total = float(action.sum())
        action[:] = 0
        return total


def test_a_component_that_changes_its_action_affects_no_other_and_no_replay():
    env = PlumeEnv(**SMALL, action_model=Clearing(), reward_fn=ClearingReward(), start_location=(3, 3))
    env.reset(seed=0)
    action = np.array([1.0, 0.5], np.float32)
    assert [env.step(action)[1] for _ in range(2)] == [1.5, 1.5]
    assert action.tolist() == [1.0, 0.5]
    beside = Session(env.session.env)
    beside.reset(seed=1)  # the first episode continues with copies
    twin = env.session.fork()
    expected = env.step(action)[4]["agent_xy"]
    assert expected == twin.step(action).info["agent_xy"] == (6.0, 4.5)


class Labelled(Wrapper):
    def info(self, state: Any, params: Any) -> Any:
        return {**super().info(state, params), "label": state.step_count}


class Silent(Wrapper):
    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        *outcome, info = super().step(key, state, action, params)
        return *outcome, {name: info[name] for name in ("terminated", "truncated")}


def test_the_info_of_a_wrapper_is_in_steps_too():
    env = make_resetting().session.env
    labelled = to_gymnasium(Labelled(env))
    assert labelled.reset(seed=0)[1]["label"] == 0
    assert labelled.step(0)[4]["label"] == 1
    session = Session(Silent(env))
    assert set(session.reset(seed=0).info) == set(session.step(0).info)


def test_the_caller_may_change_the_info():
    session = make_all_user().session
    for timestep in (session.reset(seed=0), session.step(1), session.timestep):
        timestep.info.clear()
        assert session.timestep.info["goal_location"] == (16, 12)


def make_search() -> Any:
    return make_resetting().session.env


@pytest.mark.usefixtures("separate_registry")
def test_commands_take_a_function_that_its_module_registered():
    """A search with user parts has no class of its own to name."""
    register("OwnSearch-v0", make_search)
    env, params = resolve_environment(f"{__name__}:make_search", {"goal_radius": 3.0}, {})
    assert not env.pure
    assert params.goal_radius == 3.0


class Failing(SmoothedSensor):
    """Its memory is not reset by an episode; `failing` calls raise after they have changed it."""

    failing = 0

    def get_observation(self, env_state: Any) -> Any:
        obs = super().get_observation(env_state)
        if self.failing:
            self.failing -= 1
            raise OSError("no signal")
        return obs


def test_after_a_failed_reset_the_episode_continues():
    sensor = Failing()
    env, same = make_all_user(sensor_model=sensor), make_all_user()
    for each in (env, same):
        play(each, 3, ACTIONS)
        play(each, 4, ACTIONS[:5])
    sensor.failing = 1
    with pytest.raises(OSError, match="no signal"):
        env.reset(seed=5)
    assert [str(env.step(action)) for action in ACTIONS] == [str(same.step(action)) for action in ACTIONS]


def test_a_restore_point_outlives_its_episode():
    session = make_all_user().session
    session.reset(seed=3)
    session.step(1)
    restore = session.restore_point()
    expected = str(session.step(2))
    session.reset(seed=4)
    session.step(0)
    assert str(restore().step(2)) == expected


def test_a_session_whose_parts_run_another_episode_can_be_forked():
    session = make_all_user().session
    session.reset(seed=3)
    session.step(1)
    beside = Session(session.env)
    beside.reset(seed=4)
    beside.step(1)
    twin = Session(Labelled(session.env))
    twin.reset(seed=5)
    assert str(session.fork().step(2)) == str(session.step(2))
    assert str(beside.fork().step(2)) == str(beside.step(2))
    assert str(twin.fork().step(2)) == str(twin.step(2))


def test_a_rejected_action_changes_nothing():
    motion, sensor = SlipperyMotion(), SmoothedSensor()
    motion.validate_action = lambda action: action != 2
    env, same = make_all_user(action_model=motion, sensor_model=sensor), make_all_user()
    for each in (env, same):
        each.reset(seed=0)
        each.step(1)
    with pytest.raises(ValidationError, match="validate_action"):
        env.step(2)
    assert not env.session.is_damaged
    assert str(env.step(1)) == str(same.step(1))
    assert sensor.calls[-1] == ("sensor", 2), "the user's own object still runs"


class Uncopyable:
    def __init__(self, error: Exception):
        self.error = error

    def __deepcopy__(self, memo: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [TypeError("a lock"), RuntimeError("a tensor"), copy.Error("a device")])
def test_parts_that_cannot_be_copied_run_until_one_raises(error: Exception):
    sensor: Any = Failing()
    sensor.device = Uncopyable(error)
    env = make_all_user(sensor_model=sensor)
    env.reset(seed=0)
    env.step(0)
    sensor.failing = 1
    with pytest.raises(OSError, match="no signal"):
        env.step(0)
    with pytest.raises(StateError, match="cannot be copied"):
        env.step(0)
    env.reset(seed=0)
    env.step(0)


class Keeping(PlainSensor):
    """Keeps everything that it gets."""

    def __init__(self):
        self.kept: list[Any] = []

    def get_observation(self, env_state: Any) -> Any:
        self.kept.append(env_state)
        return super().get_observation(env_state)


@pytest.mark.parametrize("plume", [pytest.param("meander", marks=pytest.mark.slow), RoundPlume()])
def test_a_sensor_may_keep_its_input(plume: Any):
    env = PlumeEnv(**SMALL, plume=plume, sensor_model=Keeping())
    play(env, 0, ACTIONS)
    play(env, 1, ACTIONS[:2])
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert len(twin.sensor_model.kept) == 1 + len(ACTIONS) + 3
        assert twin.sensor_model.kept[-1]["plume_field"].shape == (24, 32)
        assert str(twin.step(1)) == str(copy.deepcopy(env).step(1))


def test_a_plume_may_drop_the_array_that_it_holds():
    class Dropping(RoundPlume):
        def __init__(self):
            self.field_array: Any = np.zeros((24, 32))

        def reset(self, seed: int) -> None:
            self.field_array = None

    class Looking(PlainSensor):
        def get_observation(self, env_state: Any) -> Any:
            return env_state["plume_field"][12, 16:17]

    assert PlumeEnv(**SMALL, plume=Dropping(), sensor_model=Looking()).reset(seed=0)[0] == 1.0


@pytest.mark.parametrize(
    ("argument", "kind", "method", "value"),
    [
        ("sensor_model", PlainSensor, "get_observation", np.array([np.nan], np.float32)),
        ("action_model", FourWayMotion, "process_action", None),
        ("reward_fn", MixtureReward, "compute_reward", None),
        ("plume", RoundPlume, "sample", np.nan),
    ],
)
def test_an_invalid_value_of_a_component_is_not_the_callers_fault(argument: str, kind: Any, method: str, value: Any):
    """A server reports an ObservationError as an error of the environment, not of the request."""
    part = kind()
    env = PlumeEnv(**SMALL, **{argument: part})
    env.reset(seed=0)
    setattr(part, method, lambda *_, **__: value)
    with pytest.raises(ObservationError, match=method):
        env.step(0)
