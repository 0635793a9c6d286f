"""PlumeEnv and PlumeSearchEnv with library parts."""

import copy
import inspect
import pickle
import runpy
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from tropism import EnvironmentState, StateError, ValidationError, check_environment
from tropism.gym import PlumeEnv, PlumeSearchEnv
from tropism.plume.fields import Gaussian, Meander, synthetic_recording
from tropism.plume.motion import Compass, Continuous
from tropism.plume.rewards import StepPenalty
from tropism.plume.sensors import WindSense
from tropism.plume.wind import Constant

EXAMPLES = Path(__file__).parents[2] / "examples"
PLUME_INFO = {
    *("goal_reached", "agent_xy", "agent_position", "source_location", "goal_location"),
    *("distance_to_goal", "concentration_at_agent", "heading"),
}


def play(env: Any, seed: int, actions: Any) -> list[Any]:
    return [env.reset(seed=seed), *(env.step(action) for action in actions)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "mode"),
    [(PlumeEnv, None), (PlumeEnv, "rgb_array"), (PlumeEnv, "human"), (PlumeSearchEnv, "rgb_array")],
)
def test_check_env_passes(make: Any, mode: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)  # advice about specs, not failures
        check_env(make(grid_size=(24, 20), render_mode=mode))


@pytest.mark.slow
@pytest.mark.parametrize("make", [PlumeEnv, PlumeSearchEnv])
def test_check_environment_passes(make: Any):
    report = check_environment(make(grid_size=(12, 10), goal_radius=2, max_steps=30).session.env)
    assert report.ok, report


def test_the_defaults_are_the_contract_s():
    env = PlumeEnv()
    _, info = env.reset(seed=0)
    assert env.action_space == spaces.Discrete(4)
    assert env.observation_space == spaces.Box(0, 1, (1,))
    assert info["source_location"] == (64, 64)
    assert info["distance_to_goal"] > 5
    assert all(p.kind is p.KEYWORD_ONLY for p in inspect.signature(PlumeEnv).parameters.values())
    params = env.session.params
    assert (params.field.sigma, params.goal_radius, params.max_steps) == (20.0, 5.0, 1000)
    assert params.arena.shape == (128, 128)


def test_it_is_the_registered_environment():
    ours, registered = PlumeEnv(), gymnasium.make("tropism/PlumeNav-v0")
    assert str(play(ours, 5, range(4))) == str(play(registered, 5, range(4)))


def test_a_trail_in_the_picture_does_not_change_the_trajectory():
    assert str(play(PlumeEnv(render_mode="rgb_array"), 5, range(4))) == str(play(PlumeEnv(), 5, range(4)))


def test_spaces_are_those_of_the_models_and_gymnasium_s():
    env = PlumeEnv(sensor_model=WindSense(), action_model=Continuous())
    assert env.action_space == env.action_model.action_space
    assert env.observation_space == env.sensor_model.observation_space
    assert isinstance(env.action_model.action_space, spaces.Box)
    assert isinstance(env.sensor_model.component, WindSense)


def test_info_has_the_contract_entries_at_reset_and_step():
    env = PlumeEnv(start_location=(70, 64))
    _, first = env.reset(seed=1)
    *_, then = env.step(0)
    for info in (first, then):
        assert set(info) >= PLUME_INFO | {"seed", "step_count", "episode_count", "total_reward"}
        assert all(type(side) is int for side in info["agent_xy"] + info["source_location"])
    assert first["agent_position"] == (70, 64)
    assert then["agent_xy"] == (70, 65)
    assert then["distance_to_goal"] == pytest.approx(np.hypot(6, 1))
    assert then["concentration_at_agent"] == pytest.approx(np.exp(-37 / 800))


def test_every_transition_of_the_lifecycle():
    env = PlumeEnv(start_location=(70, 64), max_steps=3)
    assert env.lifecycle is EnvironmentState.CREATED
    with pytest.raises(StateError, match="CREATED"):
        env.step(0)
    env.reset(seed=0)
    assert env.lifecycle is EnvironmentState.READY
    env.reset()
    assert env.step(3)[1:4] == (1.0, True, False)
    assert env.lifecycle is EnvironmentState.TERMINATED
    with pytest.raises(StateError, match="TERMINATED"):
        env.step(0)
    env.reset()
    assert [env.step(1)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    assert env.lifecycle is EnvironmentState.TRUNCATED
    with pytest.raises(StateError, match="TRUNCATED"):
        env.step(0)
    env.reset()
    assert env.lifecycle is EnvironmentState.READY
    env.close()
    env.close()
    assert env.lifecycle is EnvironmentState.CLOSED
    for call in (env.reset, lambda: env.step(0)):
        with pytest.raises(StateError, match="CLOSED"):
            call()


def test_both_flags_on_the_last_step_are_terminated():
    env = PlumeEnv(start_location=(70, 64), max_steps=1)
    env.reset(seed=0)
    assert env.step(3)[2:4] == (True, True)
    assert env.lifecycle is EnvironmentState.TERMINATED


@pytest.mark.parametrize("action", [4, -1, True, 1.0, None, "up", [0], np.array([1])])
def test_an_invalid_action_changes_nothing(action: Any):
    env, twin = PlumeEnv(), PlumeEnv()
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ValidationError):
        env.step(action)
    assert str(env.step(np.int64(2))) == str(twin.step(2))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"grid_size": (0, 5)}, "grid_size"),
        ({"grid_size": 128}, "grid_size"),
        ({"grid_size": (12.0, 12)}, "grid_size"),
        ({"source_location": (128, 3)}, "source_location"),
        ({"source_location": (-1, 3)}, "source_location"),
        ({"source_location": (np.nan, 3)}, "source_location"),
        ({"source_location": "middle"}, "source_location"),
        ({"start_location": (3, 200)}, "start_location"),
        ({"start_location": (3, 2, 1)}, "start_location"),
        ({"goal_radius": -1}, "goal_radius"),
        ({"goal_radius": np.nan}, "goal_radius"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": 2.5}, "max_steps"),
        ({"plume_params": {"sigma": 0}}, "sigma"),
        ({"plume_params": {"sigma": -1.0}}, "sigma"),
        ({"plume_params": {"sigma": np.nan}}, "sigma"),
        ({"plume_params": {"sigma": "wide"}}, "sigma"),
        ({"plume_params": {"sigma": [1.0, 2.0]}}, "sigma"),
        ({"plume_params": {"width": 3}}, "width"),
        ({"plume_params": {"source": (1, 1)}}, "source"),
        ({"plume_params": 3}, "plume_params"),
        ({"plume": "smoke"}, "plume"),
        ({"plume": 3}, "sample"),
        ({"plume": object(), "plume_params": {"sigma": 3}}, "plume_params"),
        ({"sensor_model": object()}, "observation_space"),
        ({"action_model": object()}, "action_space"),
        ({"reward_fn": lambda *args: 1.0}, "compute_reward"),
        ({"wind_field": object()}, r"sample\(position\)"),
        ({"plume": "meander", "wind_field": Constant((1.0, 0.0))}, "has its own wind"),
        ({"sensor_model": StepPenalty()}, "sensor_model StepPenalty has no attribute observation_space"),
        ({"render_mode": "ansi"}, "render_mode"),
    ],
)
def test_errors_name_bad_arguments(arguments: dict[str, Any], names: str):
    with pytest.raises(ValidationError, match=names):
        PlumeEnv(**arguments)


def test_the_preset_has_a_fixed_sensor():
    with pytest.raises(ValidationError, match="sensor_model"):
        PlumeSearchEnv(sensor_model=WindSense())


@pytest.mark.parametrize(
    "options",
    [{"start": (1, 1)}, {"start_location": (200, 0)}, {"source_location": (0.5, 0)}, {"params": {"size": 1}}, [1]],
)
def test_bad_options_are_rejected(options: Any):
    env = PlumeEnv()
    with pytest.raises(ValidationError):
        env.reset(seed=0, options=options)
    assert env.lifecycle is EnvironmentState.CREATED


def test_options_apply_to_one_episode():
    env = PlumeEnv()
    options = {"start_location": (3, 4), "source_location": (10, 90), "params": {"field.sigma": 5.0, "max_steps": 1}}
    _, info = env.reset(seed=0, options=options)
    assert (info["agent_xy"], info["goal_location"]) == ((3, 4), (10, 90))
    assert env.step(0)[3] is True
    assert env.reset(seed=0)[1]["goal_location"] == (64, 64)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_bad_seeds_are_rejected(seed: Any):
    with pytest.raises(ValidationError, match="seed"):
        PlumeEnv().reset(seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {"plume": "meander", "plume_params": {"gust": 1.0}, "grid_size": (64, 48)},
        {"plume": "gaussian", "plume_params": {"sigma": 9}},
        {"plume": Gaussian(source=(10.0, 20.0)), "wind_field": Constant((1.0, 0.5)), "sensor_model": WindSense()},
        {"plume": synthetic_recording(), "wind_field": Constant((1.0, 0.5)), "sensor_model": WindSense()},
        {"action_model": Compass(), "reward_fn": StepPenalty()},
    ],
    ids=["meander", "gaussian", "wind", "recording", "models"],
)
def test_library_parts_compile_into_one_step(arguments: dict[str, Any]):
    env = PlumeEnv(**arguments)
    assert env.session.env.pure
    for outcome in play(env, 0, [0, 1, 2]):
        assert env.observation_space.contains(outcome[0])
    assert env.session.env == PlumeEnv(**arguments).session.env


@pytest.mark.slow
def test_wind_field_and_source_location_are_used():
    env = PlumeEnv(plume=Meander(), source_location=(20, 30))
    assert env.reset(seed=0)[1]["source_location"] == (20, 30)
    for plume in (None, synthetic_recording()):
        windy = PlumeEnv(plume=plume, wind_field=Constant((1.0, 0.5)), sensor_model=WindSense())
        assert windy.reset(seed=0)[0].tolist() == [1.0, 0.5]


@pytest.mark.slow
def test_render_modes():
    env = PlumeEnv(grid_size=(32, 24))
    env.reset(seed=0)
    picture = env.render(mode="rgb_array")
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)
    with pytest.raises(ValidationError, match="ansi"):
        env.render(mode="ansi")
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
    drawn = PlumeEnv(grid_size=(32, 24), render_mode="rgb_array")
    drawn.reset(seed=0)
    assert drawn.render().shape == drawn.render(mode="rgb_array").shape == picture.shape


def test_render_in_a_window_returns_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = PlumeEnv(grid_size=(32, 24))
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*shows nothing.*")  # without pygame
        assert env.render(mode="human") is None
    pickle.loads(pickle.dumps(env)).step(0)
    env.close()


def test_the_preset_observes_everything():
    env = PlumeSearchEnv()
    obs, info = env.reset(seed=0)
    assert env.observation_space == spaces.Dict(
        agent_position=spaces.Box(0, 127, (2,), np.int32),
        concentration_field=spaces.Box(0, 1, (128, 128)),
        source_location=spaces.Box(0, 127, (2,), np.int32),
    )
    assert env.action_space == spaces.Discrete(4)
    assert tuple(obs["agent_position"]) == info["agent_xy"]
    x, y = info["agent_xy"]
    assert obs["concentration_field"][y, x] == pytest.approx(info["concentration_at_agent"])
    assert obs["concentration_field"][64, 64] == 1.0
    env.reset(seed=0, options={"start_location": (58, 64)})
    assert env.step(3)[1:3] == (0.0, False)
    assert [env.step(1)[1:3] for _ in range(2)] == [(0.0, False), (1.0, True)]


@pytest.mark.slow
def test_copies_continue_identically():
    env = PlumeEnv(plume="meander", grid_size=(24, 20), render_mode="rgb_array")
    play(env, 4, [0, 1, 1])
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for action in (1, 2, 3):
        expected = str(env.step(action))
        assert [str(twin.step(action)) for twin in twins] == [expected] * 2
    assert all(np.array_equal(env.render(), twin.render()) for twin in twins)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**70), actions=st.lists(st.integers(0, 3), max_size=20))
def test_invariants_hold_for_any_seed_and_actions(seed: int, actions: list[int]):
    env = PlumeEnv(grid_size=(16, 12), goal_radius=2.0, max_steps=15)
    obs, info = env.reset(seed=seed)
    total, terminated, truncated = 0.0, False, False
    for number, action in enumerate(actions, 1):
        obs, reward, terminated, truncated, info = env.step(action)
        total += reward
        x, y = info["agent_xy"]
        assert 0 <= x < 16
        assert 0 <= y < 12
        assert env.observation_space.contains(obs)
        assert np.isfinite(reward)
        assert (info["step_count"], info["total_reward"]) == (number, total)
        assert terminated == info["goal_reached"] == (info["distance_to_goal"] <= 2.0)
        assert truncated == (number >= 15)
        if terminated or truncated:
            break
    expected = EnvironmentState.TERMINATED if terminated else EnvironmentState.TRUNCATED
    assert env.lifecycle is (expected if terminated or truncated else EnvironmentState.READY)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numpy_sensor", "pure_field"])
def test_the_examples_run_and_find_the_source(name: str, capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "reward 1.0" in (output := capsys.readouterr().out) or "found the source" in output
