"""The VecEnv of Stable-Baselines3, with and without that library."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.compat import sb3_python
from benchmarks.peers import UnavailableError

from tropism import Session, make
from tropism.errors import MissingExtraError, StateError, ValidationError
from tropism.gym import GymVectorEnv
from tropism.gym.sb3 import BatchVecEnv, make_vec_env

ROOT = Path(__file__).parents[2]
SHORT = {"max_steps": 11, "theta_threshold": 0.08}  # episodes end in both ways


def cartpoles(num_envs: int = 3, **arguments: Any) -> BatchVecEnv:
    env, params = make("CartPole-v1", params=SHORT)
    return BatchVecEnv(GymVectorEnv(env, num_envs, params, autoreset_mode="same_step", **arguments))


def test_it_repeats_sessions_and_reports_their_ends() -> None:
    vec_env = cartpoles()
    sessions = [Session(*make("CartPole-v1", params=SHORT)) for _ in range(3)]
    assert vec_env.seed(5) == [5, 6, 7]
    obs = vec_env.reset()
    np.testing.assert_allclose(obs, [session.reset(seed=5 + i).obs for i, session in enumerate(sessions)], atol=1e-6)
    assert [info["seed"] for info in vec_env.reset_infos] == [5, 6, 7]
    ends: set[bool] = set()
    for row in np.random.default_rng(0).integers(0, 2, (40, 3)):
        obs, reward, done, infos = vec_env.step(row)
        assert reward.dtype == np.float32
        for number, session in enumerate(sessions):
            step = session.step(row[number])
            assert done[number] == (step.terminated or step.truncated)
            expected = step.obs
            if done[number]:
                np.testing.assert_allclose(infos[number]["terminal_observation"], step.obs, atol=1e-5)
                assert infos[number]["TimeLimit.truncated"] == (step.truncated and not step.terminated)
                assert infos[number]["step_count"] == session.step_count
                ends.add(infos[number]["TimeLimit.truncated"])
                expected = session.reset().obs
            else:
                assert infos[number] == {}
            np.testing.assert_allclose(obs[number], expected, atol=1e-5)
    assert ends == {True, False}


def test_a_seed_is_used_once() -> None:
    vec_env = cartpoles()
    vec_env.seed(5)
    first, second = vec_env.reset(), vec_env.reset()
    assert not np.array_equal(first, second)
    vec_env.seed(5)
    np.testing.assert_array_equal(vec_env.reset(), first)


def test_attributes_and_methods_are_those_of_the_vector() -> None:
    vec_env = cartpoles(render_mode="rgb_array")
    vec_env.seed(2)
    vec_env.reset()
    assert vec_env.get_attr("render_mode") == ["rgb_array"] * 3
    assert vec_env.get_attr("seeds", indices=[0, 2]) == [2, 4]
    assert vec_env.env_method("_require_episode", "render", indices=1) == [None]
    assert [np.shape(picture) for picture in vec_env.get_images()] == [np.shape(vec_env.get_images()[0])] * 3
    vec_env.set_attr("label", "x")
    assert vec_env.get_attr("label") == ["x"] * 3
    with pytest.raises(ValidationError, match="one value for all"):
        vec_env.set_attr("label", "y", indices=[1])
    assert vec_env.env_is_wrapped(object, indices=0) == [False]


def test_misuse_is_refused() -> None:
    vec_env = cartpoles()
    vec_env.reset()
    with pytest.raises(StateError, match="step_async"):
        vec_env.step_wait()
    with pytest.raises(ValidationError, match="the same options"):
        vec_env.set_options([{"a": 1}, {}, {}])
    vec_env.close()
    with pytest.raises(StateError, match="CLOSED"):
        vec_env.reset()


def test_without_stable_baselines3_the_error_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError, match="stable_baselines3"):
        make_vec_env("CartPole-v1", 2)


@pytest.mark.full
def test_stable_baselines3_trains_on_it() -> None:
    """In an environment of its own, where torch takes gigabytes."""
    try:
        python = sb3_python()
    except UnavailableError as error:
        pytest.skip(f"Stable-Baselines3 cannot be installed: {error}")
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    done = subprocess.run(
        [python, "-m", "tests.gym.train_with_sb3"],
        env={**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout
