"""PlumeEnv with user parts."""

import copy
import pickle
import threading
import warnings
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from tests.gym.own_parts import (
    ACTIONS,
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
    make_resetting,
    play,
)

import tropism
from tropism import EnvironmentState, StateError, ValidationError
from tropism.envs.plume.host import PlumeHost
from tropism.gym import PlumeEnv, PlumeSearchEnv, to_gymnasium
from tropism.plume.fields import Gaussian, Meander, synthetic_recording
from tropism.plume.motion import Cardinal, Continuous, RunTumble
from tropism.plume.rewards import Approach, ConcentrationGain
from tropism.plume.sensors import Antennae, Concat, Concentration, FullField, WindSense
from tropism.plume.wind import Constant, Wandering

KEYS = {
    *("agent_state", "plume_field", "concentration_field", "wind_field", "goal_location"),
    *("grid_size", "step_count", "max_steps", "rng"),
}
ONE_OWN: dict[str, dict[str, Any]] = {
    "plume": {"plume": FlickerPlume},
    "wind": {"wind_field": GustyWind},
    "sensor": {"sensor_model": SmoothedSensor},
    "motion": {"action_model": SlipperyMotion},
    "reward": {"reward_fn": HungryReward},
    "plume and gain": {"plume": FlickerPlume, "reward_fn": lambda: ConcentrationGain()},
    "plume, antennae": {"plume": FlickerPlume, "sensor_model": lambda: Antennae()},
    "plume, whole field": {"plume": FlickerPlume, "sensor_model": lambda: FullField()},
    "plume, library wind": {"plume": FlickerPlume, "sensor_model": WindSense, "wind_field": Wandering},
    "wind, drift": {"wind_field": GustyWind, "action_model": lambda: Continuous(drift=True, dt=0.1)},
    "sensor, meander": {"sensor_model": SmoothedSensor, "plume": lambda: Meander(source=(4.0, 12.0))},
    "sensor, recording": {"sensor_model": SmoothedSensor, "plume": synthetic_recording, "grid_size": lambda: None},
    "motion, approach": {"action_model": SlipperyMotion, "reward_fn": Approach},
    "reward, run and tumble": {"reward_fn": HungryReward, "action_model": RunTumble},
}


def make_mixed(name: str, **more: Any) -> PlumeEnv:
    return PlumeEnv(**{**SMALL, **{part: make() for part, make in ONE_OWN[name].items()}, **more})


def test_user_parts_work_together_and_are_reproducible():
    env = make_all_user()
    first = play(env, 7, ACTIONS)
    assert play(make_all_user(), 7, ACTIONS) == first
    assert play(make_all_user(), 8, ACTIONS) != first
    assert env.session.env.pure is False
    assert env.lifecycle is EnvironmentState.READY


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_OWN)
def test_user_and_library_parts_can_be_mixed(name: str):
    env, again = make_mixed(name), make_mixed(name)
    env.action_space.seed(1)
    actions = [env.action_space.sample() for _ in range(5)]
    assert play(env, 3, actions) == play(again, 3, actions)
    obs, info = env.reset(seed=3)
    assert env.observation_space.contains(obs)
    assert np.isfinite(info["concentration_at_agent"])
    assert env.action_space == env.action_model.action_space
    assert env.observation_space == env.sensor_model.observation_space


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plume", "wind", "motion", "plume, whole field"])
def test_check_env_passes(name: str):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)  # advice about specs, not failures
        check_env(make_mixed(name, sensor_model=PlainSensor(), reward_fn=SparseReward(), render_mode="rgb_array"))


@pytest.mark.parametrize(
    "own",
    [
        {"sensor_model": PlainSensor()},
        {"action_model": FourWayMotion()},
        {"reward_fn": SparseReward()},
        {"plume": RoundPlume()},
    ],
    ids=lambda own: next(iter(own)),
)
def test_a_user_part_changes_nothing_else(own: Any):
    """The same start, the same steps, rewards and info as in the compiled environment; a user's action model decides
    about the heading."""
    env, compiled = PlumeEnv(**SMALL, **own), PlumeEnv(**SMALL)
    ignored = {"heading"} if "action_model" in own else set[str]()
    for seed in range(3):
        assert equal(env.reset(seed=seed), compiled.reset(seed=seed), ignored)
        for action in ACTIONS:
            if env.lifecycle is EnvironmentState.READY:
                assert equal(env.step(action), compiled.step(action), ignored)


def equal(one: Any, other: Any, ignored: Any = ()) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one if key not in ignored)
    if isinstance(one, tuple):
        pairs = zip(one, other, strict=True)
        return len(one) == len(other) and all(equal(ours, theirs, ignored) for ours, theirs in pairs)
    if isinstance(one, float | np.ndarray):
        return type(one) is type(other) and np.allclose(one, other, atol=1e-6)
    return type(one) is type(other) and one == other


def test_a_library_plume_is_the_same_with_a_user_sensor():
    own: list[dict[str, Any]] = [{"sensor_model": PlainSensor()}, {}]
    env, compiled = (PlumeEnv(**SMALL, plume="meander", **each) for each in own)
    for ours, theirs in zip(run(env, 5), run(compiled, 5), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


def run(env: PlumeEnv, seed: int) -> list[float]:
    first = env.reset(seed=seed, options={"start_location": (20, 12)})[1]["concentration_at_agent"]
    return [first, *(env.step(action)[4]["concentration_at_agent"] for action in (0, 1, 2))]


def test_calls_are_in_the_contract_order():
    calls: Calls = []
    env = make_all_user(calls)
    env.reset(seed=7)
    assert [call[0] for call in calls] == ["set_rng", "plume.reset", "wind.reset", "sensor"]
    assert calls[1] == ("plume.reset", 7)
    calls.clear()
    env.step(np.int64(1))
    assert calls == [
        ("validate_action", 1),
        ("process_action", 1, 0),
        ("plume.advance_to_step", 1),
        ("wind.advance_to_step", 1),
        ("compute_reward", 0, 1),
        ("sensor", 1),
    ]


@pytest.mark.parametrize("seed", [None, 3, 2**80])
def test_a_plume_always_gets_a_seed_valid_for_any_generator(seed: int | None):
    calls: Calls = []
    env = make_all_user(calls)
    for _ in range(2):
        env.reset(seed=seed)
    seeds = [call[1] for call in calls if call[0].endswith(".reset")]
    assert len(seeds) == 4
    assert all(type(given) is int and 0 <= given < 2**32 for given in seeds)
    assert (len(set(seeds)) == 4) == (seed is None)


def test_an_unseeded_episode_can_be_reproduced():
    env = make_all_user()
    env.reset()
    trajectory = [str(env.step(action)[:4]) for action in ACTIONS]
    again = make_all_user()
    again.reset(seed=env.session.seed)
    assert [str(again.step(action)[:4]) for action in ACTIONS] == trajectory


def test_a_sensor_gets_the_contract_inputs():
    seen: list[Any] = []

    class Curious(PlainSensor):
        def get_observation(self, env_state: Any) -> Any:
            seen.append(env_state)
            return super().get_observation(env_state)

    calls: Calls = []
    env = PlumeEnv(**SMALL, plume=FlickerPlume(calls), sensor_model=Curious(), start_location=(3, 4))
    env.reset(seed=0)
    env.step(0)
    state = seen[1]
    assert set(state) == KEYS
    assert len(state) == len(KEYS)
    agent = state["agent_state"]
    assert (agent.position.x, agent.position.y) == tuple(agent.position) == (3, 5)
    assert agent.orientation == 90.0
    assert (agent.step_count, agent.total_reward, agent.goal_reached) == (1, 0.0, False)
    assert (state["grid_size"].width, state["grid_size"].height) == tuple(state["grid_size"]) == (32, 24)
    assert (state["step_count"], state["max_steps"], tuple(state["goal_location"])) == (1, 40, (16, 12))
    assert isinstance(state["rng"], np.random.Generator)
    assert state["concentration_field"] is env.plume
    assert tuple(state["wind_field"].sample(agent.position)) == (0.0, 0.0)
    assert ("plume.field_array",) not in calls
    assert state["plume_field"].shape == (24, 32)
    assert calls.count(("plume.field_array",)) == 1
    with pytest.raises(KeyError):
        state["smell"]


def test_a_library_plume_has_the_plume_interface_for_a_user_sensor():
    seen: dict[str, Any] = {}

    class Curious(PlainSensor):
        def get_observation(self, env_state: Any) -> Any:
            seen.update(env_state)
            return super().get_observation(env_state)

    env = PlumeEnv(**SMALL, sensor_model=Curious(), wind_field=Constant((0.5, -1.0)))
    env.reset(seed=0)
    plume = seen["concentration_field"]
    assert plume.sample(16, 12) == 1.0
    assert plume.sample(-5, 12) == 0.0
    assert np.array_equal(plume.field_array, seen["plume_field"])
    assert np.asarray(plume).shape == (24, 32)
    assert seen["plume_field"][12, 16] == 1.0
    assert seen["wind_field"].sample((3, 4)).tolist() == [0.5, -1.0]
    with pytest.raises(ValidationError, match="current step"):
        plume.sample(1, 1, t=5)


def test_a_plume_without_advance_to_step_gets_the_time():
    times: list[Any] = []

    class Timed(RoundPlume):
        def sample(self, x: Any, y: Any, t: Any = None) -> Any:
            times.append(t)
            return 0.5

    env = PlumeEnv(**SMALL, plume=Timed())
    env.reset(seed=0)
    env.step(0)
    assert set(times) == {0, 1}


def test_library_parts_use_a_user_plume_before_the_step():
    env = PlumeEnv(**SMALL, plume=FlickerPlume(), reward_fn=ConcentrationGain(), start_location=(10, 10))
    _, info = env.reset(seed=0)
    for action in (0, 1, 0):
        before = info["concentration_at_agent"]
        _, reward, _, _, info = env.step(action)
        assert reward == pytest.approx(info["concentration_at_agent"] - before, abs=1e-6)


def test_library_sensors_use_a_user_wind_and_plume():
    nose = Concat((Concentration(), WindSense()))
    env = PlumeEnv(**SMALL, plume=RoundPlume(), wind_field=GustyWind(), sensor_model=nose, start_location=(16, 6))
    env.reset(seed=0)
    obs, *_, info = env.step(0)
    assert obs.tolist() == pytest.approx([info["concentration_at_agent"], 2.0, 7 / 24])
    still = PlumeEnv(**SMALL, wind_field=GustyWind(), sensor_model=nose, start_location=(16, 6))
    assert still.reset(seed=0)[0].tolist() == pytest.approx([np.exp(-36 / 800), 1.0, 0.25])


def test_the_user_objects_themselves_are_called():
    sensor, motion = SmoothedSensor(), SlipperyMotion()
    env = PlumeEnv(**SMALL, sensor_model=sensor, action_model=motion)
    env.reset(seed=0)
    env.step(1)
    assert env.sensor_model is sensor
    assert env.action_model is motion
    assert env.observation_space is sensor.observation_space
    assert ("sensor", 1) in sensor.calls
    assert motion.calls[-1] == ("process_action", 1, 0)


class Meddler:
    """Changes every agent that it gets, in all three roles."""

    action_space, observation_space = FourWayMotion.action_space, PlainSensor.observation_space

    def process_action(self, action: Any, agent: Any, grid_size: Any) -> Any:
        moved = FourWayMotion().process_action(action, agent, grid_size)
        self.meddle(agent)
        return moved

    def compute_reward(self, prev_state: Any, action: Any, next_state: Any, plume_field: Any) -> float:
        steps = next_state.step_count - prev_state.step_count
        reward = next_state.position.x - prev_state.position.x + 100.0 * prev_state.total_reward + steps
        self.meddle(prev_state)
        self.meddle(next_state)
        return float(reward)

    def get_observation(self, env_state: Any) -> Any:
        obs = PlainSensor().get_observation(env_state).astype(np.float32) + env_state["agent_state"].step_count / 100
        self.meddle(env_state["agent_state"])
        return obs

    def meddle(self, agent: Any) -> None:
        agent.position, agent.orientation, agent.step_count, agent.total_reward = (0, 0), 1.0, 77, 7.0
        agent.goal_reached = True


class Onlooker(Meddler):
    def meddle(self, agent: Any) -> None:
        pass


def test_a_component_that_changes_its_agent_affects_no_other():
    played: list[list[str]] = []
    for kind in (Meddler, Onlooker):
        part = kind()
        env = PlumeEnv(**SMALL, plume=RoundPlume(), action_model=part, sensor_model=part, reward_fn=part)
        played.append(play(env, 3, ACTIONS))
    assert played[0] == played[1]


def test_a_plume_may_replace_the_array_that_it_holds():
    class Stored(RoundPlume):
        def __init__(self):
            self.field_array = np.zeros((24, 32))

        def advance_to_step(self, k: int) -> None:
            self.field_array = np.full((24, 32) if k < 3 else (3, 3), k / 10)

    class Looking(PlainSensor):
        def get_observation(self, env_state: Any) -> Any:
            assert set(env_state) == KEYS
            return env_state["plume_field"][0, :1].astype(np.float32)

    env = PlumeEnv(**SMALL, plume=Stored(), sensor_model=Looking())
    assert env.reset(seed=0)[0] == 0
    assert [float(env.step(0)[0][0]) for _ in range(2)] == pytest.approx([0.1, 0.2])
    with pytest.raises(ValidationError, match=r"Stored\.field_array"):
        env.step(0)


def test_tropism_spaces_are_accepted_too():
    class Ours(PlainSensor):
        observation_space: Any = tropism.Box(0, 1, (1,))

    env = PlumeEnv(**SMALL, sensor_model=Ours())
    assert env.sensor_model.observation_space == env.observation_space == spaces.Box(0, 1, (1,))
    assert isinstance(env.sensor_model.component, Ours)


@pytest.mark.slow
@pytest.mark.parametrize("through", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_during_an_episode_continues_identically(through: Any):
    env = make_all_user(render_mode="rgb_array")
    play(env, 3, ACTIONS)  # the resulting state of the sensor is copied too
    play(env, 4, ACTIONS[:4])
    twin = through(env)
    assert twin.sensor_model is not env.sensor_model
    assert twin.sensor_model.memory == env.sensor_model.memory
    for action in ACTIONS[4:]:
        assert str(env.step(action)) == str(twin.step(action))
    assert np.array_equal(env.render(), twin.render())
    assert str(env.reset()) == str(twin.reset())
    assert str(env.step(0)) == str(twin.step(0))


def test_a_fork_continues_identically_and_shares_nothing():
    env = make_all_user()
    play(env, 4, ACTIONS[:4])
    twin = env.session.fork()
    expected = [str(env.session.step(action)) for action in ACTIONS[4:]]
    assert [str(twin.step(action)) for action in ACTIONS[4:]] == expected
    env.session.reset(seed=9)
    assert str(pickle.loads(pickle.dumps(twin)).step(0)) == str(twin.step(0))


def test_a_fork_with_another_seed_is_rejected():
    env = make_all_user()
    env.reset(seed=0)
    with pytest.raises(ValidationError, match="draws its randomness when it is reset"):
        env.session.fork(seed=1)


def test_two_sessions_of_one_environment_are_independent():
    alone = [play(make_resetting(), seed, ACTIONS)[1:] for seed in (0, 1)]
    env = make_resetting()
    sensor = env.sensor_model
    env.reset(seed=0)
    first = [str(env.step(action)) for action in ACTIONS[:3]]
    beside = to_gymnasium(env.session.env)
    beside.reset(seed=1)
    second: list[str] = []
    for number, action in enumerate(ACTIONS):
        second.append(str(beside.step(action)))
        if number >= 3:
            first.append(str(env.step(action)))
    assert [first, second] == alone
    assert env.sensor_model is sensor


def test_an_earlier_state_can_be_stepped_again():
    env = make_resetting().session.env
    params = env.default_params()
    _, start = env.reset(3, params)
    once = [env.step(0, start, 1, params)]
    once.append(env.step(0, once[0][1], 2, params))
    again = [env.step(0, start, 1, params)]
    again.append(env.step(0, again[0][1], 2, params))
    other = env.step(0, once[0][1], 0, params)
    assert [moment[0].tolist() for moment in once] == [moment[0].tolist() for moment in again]
    assert other[1].step_count == 2
    assert np.array_equal(env.render(once[0][1], params), env.render(again[0][1], params))


def test_parts_that_cannot_be_copied_support_one_session_at_a_time():
    class Filed(PlainSensor):
        def __init__(self):
            self.lock = threading.Lock()

    env = PlumeEnv(**SMALL, sensor_model=Filed())
    env.reset(seed=0)
    env.step(0)
    tropism.Session(env.session.env).reset(seed=1)
    with pytest.raises(StateError, match="another episode"):
        env.step(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        make_resetting,
        pytest.param(lambda: make_mixed("plume"), marks=pytest.mark.slow),
        pytest.param(lambda: make_mixed("wind, drift"), marks=pytest.mark.slow),
    ],
)
def test_check_environment_passes(make: Any):
    report = tropism.check_environment(make().session.env, num_steps=60)
    assert report.ok, report


def test_check_environment_finds_a_sensor_that_is_not_reset():
    report = tropism.check_environment(make_mixed("sensor").session.env, num_steps=60)
    assert [result.law for result in report.failures] == ["same-seed"]


def test_environments_are_equal_if_their_parts_are():
    class Valued(PlainSensor):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Valued)

        def __hash__(self) -> int:
            return 0

    sensor = PlainSensor()
    ours = PlumeEnv(**SMALL, sensor_model=sensor).session.env
    changes: list[dict[str, Any]] = [{}, {"max_steps": 41}]
    same, wider = (PlumeEnv(**{**SMALL, **more}, sensor_model=sensor).session.env for more in changes)
    assert ours == same
    assert ours == copy.deepcopy(ours)
    assert hash(ours) == hash(same) == hash(copy.deepcopy(ours))
    assert ours not in (wider, PlumeEnv(**SMALL, sensor_model=PlainSensor()).session.env)
    assert PlumeEnv(**SMALL, sensor_model=Valued()).session.env == PlumeEnv(**SMALL, sensor_model=Valued()).session.env


def test_a_seed_is_reproducible_in_one_environment_and_after_pickling():
    env = make_resetting()
    first = play(env, 5, ACTIONS)
    play(env, 6, ACTIONS)
    assert play(env, 5, ACTIONS) == first
    assert play(pickle.loads(pickle.dumps(env)), 5, ACTIONS) == first


def test_options_and_the_preset_work_on_the_host():
    env = PlumeSearchEnv(**SMALL, reward_fn=SparseReward())
    options = {"start_location": (2, 3), "source_location": (5, 3), "params": {"field.sigma": 3.0, "goal_radius": 2}}
    obs, info = env.reset(seed=0, options=options)
    assert info["agent_xy"] == (2, 3)
    assert obs["concentration_field"][3, 2] == pytest.approx(np.exp(-0.5))
    obs, reward, terminated, *_ = env.step(1)
    assert (reward, terminated, tuple(obs["agent_position"])) == (1.0, True, (3, 3))
    with pytest.raises(ValidationError, match="known option"):
        env.reset(options={"plume": 1})


def test_the_lifecycle_is_the_same_on_the_host():
    env = make_all_user(start_location=(3, 3), max_steps=2)
    with pytest.raises(StateError, match="CREATED"):
        env.step(0)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    with pytest.raises(StateError, match="TRUNCATED"):
        env.step(0)
    env.reset(options={"start_location": (16, 12)})
    assert env.session.timestep.info["goal_reached"]
    env.close()
    env.close()
    with pytest.raises(StateError, match="CLOSED"):
        env.reset()


def test_floats_stay_floats_off_the_grid():
    class Half(FourWayMotion):
        def process_action(self, action: Any, agent: Any, grid_size: Any) -> Any:
            agent.position = (agent.position.x + 0.5, agent.position.y)
            return agent

    env = PlumeEnv(**SMALL, action_model=Half(), start_location=(3, 4))
    env.reset(seed=0)
    assert env.step(0)[4]["agent_xy"] == (3.5, 4.0)


@pytest.mark.slow
def test_render_and_describe():
    env = make_all_user(render_mode="rgb_array")
    play(env, 0, ACTIONS)
    assert env.render().shape == (480, 640, 3)
    assert "Step 8 of 40" in env.session.describe()
    own_picture = PlumeEnv(**SMALL, plume=RoundPlume())
    own_picture.reset(seed=0)
    library = PlumeEnv(
        **SMALL, plume=Gaussian(source=(16.0, 12.0)), sensor_model=PlainSensor(), action_model=Cardinal()
    )
    library.reset(seed=0)
    assert np.array_equal(own_picture.render(mode="rgb_array"), library.render(mode="rgb_array"))


@pytest.mark.slow
def test_invariants_hold_for_any_seed():
    env = make_all_user()
    rng = np.random.default_rng(0)
    for _ in range(30):
        env.reset(seed=int(rng.integers(2**62)))
        total = 0.0
        for number in range(1, 41):
            obs, reward, terminated, truncated, info = env.step(int(rng.integers(4)))
            total += reward
            assert env.observation_space.contains(obs)
            assert 0 <= info["agent_xy"][0] < 32
            assert 0 <= info["agent_xy"][1] < 24
            assert (info["step_count"], info["total_reward"]) == (number, total)
            assert terminated == (info["distance_to_goal"] <= 1.0)
            assert truncated == (number == 40)
            if terminated or truncated:
                break


class Place:
    def __init__(self, x: int, y: int):
        self.x, self.y = x, y


class Extent:
    width, height = 24, 20


class ClosingSensor(PlainSensor):
    closed = 0

    def close(self) -> None:
        self.closed += 1
        raise OSError("the device is gone")


def test_sizes_and_places_may_be_objects_and_arguments_are_attributes() -> None:
    env = PlumeEnv(
        grid_size=Extent(), source_location=Place(5, 6), start_location=Place(20, 10), goal_radius=2.0, max_steps=9
    )
    assert (env.grid_size.width, env.grid_size.height) == (24, 20)
    assert tuple(env.source_location) == (5, 6)
    assert tuple(env.start_location or ()) == (20, 10)
    assert (env.goal_radius, env.max_steps, env.plume_params, env.wind_field) == (2.0, 9, None, None)
    _, info = env.reset(seed=0)
    assert info["agent_xy"] == (20, 10)


def test_a_users_action_model_starts_with_heading_0_unless_another_one_is_given() -> None:
    cases: list[tuple[dict[str, Any], float]] = [({}, 0.0), ({"start_heading": 90.0}, 90.0)]
    for arguments, heading in cases:
        env = PlumeEnv(action_model=FourWayMotion(), **SMALL, **arguments)
        for seed in range(3):
            assert env.reset(seed=seed)[1]["heading"] == pytest.approx(heading)
    _, info = PlumeEnv(start_heading=-90).reset(seed=0)
    assert info["heading"] == pytest.approx(270.0)
    with pytest.raises(ValidationError, match="start_heading"):
        PlumeEnv(start_heading=float("nan"))


def test_close_closes_components_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    sensor = ClosingSensor()
    env = PlumeEnv(sensor_model=sensor, **SMALL)
    env.reset(seed=0)
    env.close()
    assert sensor.closed == 1
    assert "ClosingSensor raised" in caplog.text


def test_a_registered_search_takes_the_arguments_of_the_class() -> None:
    sensor = PlainSensor()
    env: Any = gymnasium.make("tropism/PlumeNav-v0", sensor_model=sensor, start_heading=0.0, **SMALL).unwrapped
    assert isinstance(env, PlumeEnv)
    assert env.sensor_model is sensor
    assert env.action_model.action_space == env.action_space
    assert env.observation_space == sensor.observation_space


def test_a_users_sensor_sees_the_same_search_as_a_library_sensor() -> None:
    """The engine behind a user's sensor takes the steps of the environment without it."""
    user, library = PlumeEnv(plume="meander", sensor_model=PlainSensor()), PlumeEnv(plume="meander")
    user.reset(seed=3)
    library.reset(seed=3)
    for action in ACTIONS * 5:
        *_, mine = user.step(action)
        *_, theirs = library.step(action)
        for name in ("agent_xy", "heading", "distance_to_goal", "concentration_at_agent"):
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-6)


@pytest.mark.slow
def test_a_sensor_measures_odour_and_wind_away_from_the_agent_in_the_current_state() -> None:
    field = Meander(source=(4.0, 12.0))
    points = [(20.0, 10.5), (9.5, 12.5), (-3.0, 12.0)]

    class Elsewhere:
        observation_space = spaces.Box(-np.inf, np.inf, (9,))

        def get_observation(self, env_state: Any) -> Any:
            smell, wind = env_state["concentration_field"].sample, env_state["wind_field"].sample
            return np.array([value for xy in points for value in (smell(*xy), *wind(xy))], np.float32)

    env = PlumeEnv(**SMALL, plume=field, sensor_model=Elsewhere())
    obs, inner = env.reset(seed=3)[0], env.session.env
    assert isinstance(inner, PlumeHost)
    for action in (0, 1, 1, 2):
        obs = env.step(action)[0]
        assert inner.search.engine is not None
        state = inner.search.engine.state().field
        for found, xy in zip(obs.reshape(3, 3), points, strict=True):
            expected = float(field.concentration(state, jnp.array(xy))) if xy[0] >= 0 else 0.0
            np.testing.assert_allclose(
                found, [expected, *np.asarray(field.wind(state, jnp.array(xy)))], rtol=1e-5, atol=1e-6
            )
    assert len({tuple(point) for point in obs.reshape(3, 3)}) == 3
