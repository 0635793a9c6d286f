"""Tropism's ids in Gymnasium's registry."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pygame
import pytest
from gymnasium.envs.registration import EnvSpec

from tropism import EnvironmentState, ValidationError, make, register, registered
from tropism.core import registry
from tropism.gym import GymEnv, GymVectorEnv
from tropism.gym.env import step_limit


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch):
    registered()
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))  # pyright: ignore[reportPrivateUsage]
    known = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(known)


@pytest.mark.parametrize("id", [spec.id for spec in registered()])
def test_every_id_is_registered_without_wrappers(id: str):
    env = gymnasium.make(f"tropism/{id}")
    assert isinstance(env, GymEnv)
    assert env.spec is not None
    assert env.spec.id == f"tropism/{id}"
    assert env.spec.max_episode_steps == step_limit(env.session.params)


@pytest.mark.parametrize(("id", "limit"), [("CartPole-v1", 500), ("GridWorld-v0", 100), ("PlumeNav-v0", 1000)])
def test_the_spec_has_the_limit_of_the_environment(id: str, limit: int):
    env = gymnasium.make(f"tropism/{id}")
    assert env.spec is not None
    assert env.spec.max_episode_steps == limit


@pytest.mark.parametrize(("id", "limit"), [("GridWorld-v0", 7), ("GridWorld-v0", 130), ("PlumeNav-v0", 3)])
def test_max_episode_steps_shortens_and_lengthens_episodes(id: str, limit: int):
    env: Any = gymnasium.make(f"tropism/{id}", max_episode_steps=limit)
    assert env.spec.max_episode_steps == limit
    env.reset(seed=0)
    assert [env.step(3)[3] for _ in range(limit)] == [False] * (limit - 1) + [True]
    assert env.unwrapped.lifecycle is EnvironmentState.TRUNCATED


def test_max_episode_steps_limits_the_compiled_vector():
    env = gymnasium.make_vec("tropism/CartPole-v1", num_envs=2, max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(np.array([0, 1]))[3].tolist() for _ in range(3)] == [[False] * 2, [False] * 2, [True] * 2]


def test_params_decide_if_both_limits_are_given():
    env: Any = gymnasium.make("tropism/GridWorld-v0", max_episode_steps=9, params={"max_steps": 2})
    assert env.unwrapped.spec.max_episode_steps == 2


@pytest.mark.parametrize(
    "id", ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "Pendulum-v1"]
)
def test_reward_thresholds_are_gymnasiums(id: str):
    assert gymnasium.spec(f"tropism/{id}").reward_threshold == gymnasium.spec(id).reward_threshold


def test_an_environment_without_pictures_has_no_render_modes():
    env = gymnasium.make("tropism/Echo-v0")
    assert env.metadata["render_modes"] == []
    assert gymnasium.make("tropism/CartPole-v1").metadata["render_modes"] == ["human", "rgb_array"]
    with pytest.raises(ValidationError, match="render_mode"):
        gymnasium.make("tropism/Echo-v0", render_mode="rgb_array")


def test_keys_are_digits_and_arrows():
    env: Any = gymnasium.make("tropism/GridWorld-v0")
    keys = env.unwrapped.get_keys_to_action()
    arrows = [pygame.K_UP, pygame.K_RIGHT, pygame.K_DOWN, pygame.K_LEFT]
    assert [keys[code,] for code in arrows] == [keys[ord(digit),] for digit in "0123"] == [0, 1, 2, 3]
    assert gymnasium.make("tropism/Pendulum-v1").unwrapped.get_keys_to_action() == {}  # pyright: ignore


ASYNC = """
import gymnasium, tropism.gym
if __name__ == "__main__":
    gymnasium.make("tropism/PlumeNavMeander-v0").reset(seed=0)  # uses JAX before the fork
    context = {context!r}
    env = gymnasium.make_vec(
        "tropism/PlumeNavMeander-v0", num_envs=2, vectorization_mode="async", vector_kwargs={{"context": context}}
    )
    obs, _ = env.reset(seed=3)
    print(obs.shape)
    env.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_processes_are_started_by_spawn(tmp_path: Path, context: str):
    script = tmp_path / "vector.py"
    script.write_text(ASYNC.format(context=context))
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=200)
    if context == "spawn":
        assert (result.returncode, result.stdout) == (0, "(2, 3)\n"), result.stderr
    else:
        assert result.returncode != 0
        assert "forked" in result.stderr
        assert '{"context": "spawn"}' in result.stderr


@pytest.mark.slow
def test_make_imports_the_module():
    code = 'import gymnasium; print(gymnasium.make("tropism.gym:tropism/GridWorld-v0").reset(seed=0)[0])'
    result = python(code)
    assert result.stdout.strip() == "[0. 0.]", result.stderr


def test_make_vec_gives_the_compiled_vector():
    env = gymnasium.make_vec("tropism/CartPole-v1", num_envs=3)
    assert type(env) is GymVectorEnv
    assert env.num_envs == 3
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP


def test_make_vec_can_still_loop_in_python():
    env = gymnasium.make_vec("tropism/GridWorld-v0", num_envs=2, vectorization_mode="sync", size=4)
    obs, info = env.reset(seed=0)
    assert obs.shape == (2, 2)
    assert info["step_count"].tolist() == [0, 0]


def test_arguments_and_params_pass_through():
    env: Any = gymnasium.make("tropism/GridWorld-v0", size=8, params={"max_steps": 1})
    assert env.unwrapped.session.env.size == 8
    env.reset(seed=0)
    assert env.step(1)[3] is True
    vector: Any = gymnasium.make_vec("tropism/GridWorld-v0", 2, size=8, params={"max_steps": 1})
    assert vector.env.size == 8
    vector.reset(seed=0)
    assert vector.step(np.array([1, 1]))[3].all()


@pytest.mark.parametrize("make_it", [gymnasium.make, gymnasium.make_vec])
@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"sise": 8}, "sise"), ({"params": {"max_step": 1}}, "max_step"), ({"params": 3}, "params")],
    ids=str,
)
def test_unknown_arguments_and_params_are_rejected(make_it: Any, arguments: dict[str, Any], word: str):
    with pytest.raises(ValidationError, match=word):
        make_it("tropism/GridWorld-v0", **arguments)


def test_a_spec_survives_pickle_and_json():
    env = gymnasium.make("tropism/GridWorld-v0", size=4, params={"max_steps": 3})
    assert env.spec is not None
    for spec in (pickle.loads(pickle.dumps(env.spec)), EnvSpec.from_json(env.spec.to_json())):
        again: Any = gymnasium.make(spec)
        assert again.unwrapped.session.env.size == 4
        assert again.unwrapped.session.params.max_steps == 3
    assert "GridWorld" in json.dumps(env.spec.to_json())


def test_rgb_array_list_is_collected_by_gymnasium():
    env = gymnasium.make("tropism/GridWorld-v0", render_mode="rgb_array_list")
    env.reset(seed=0)
    env.step(1)
    frames: Any = env.render()
    assert len(frames) == 2


@pytest.mark.usefixtures("own_registry")
def test_an_id_registered_later_is_added_and_force_replaces_it():
    env, _ = make("GridWorld-v0", size=3)
    register("Later-v0", env)
    obs, _ = gymnasium.make("tropism/Later-v0").reset(seed=0)
    assert obs.shape == (2,)
    other, _ = make("CartPole-v1")
    register("Later-v0", other, force=True)
    obs, _ = gymnasium.make("tropism/Later-v0").reset(seed=0)
    assert obs.shape == (4,)
    assert gymnasium.make_vec("tropism/Later-v0", 2).reset(seed=0)[0].shape == (2, 4)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("id", ["My Maze", "a/b", "a:b", "", "Mäze!"])
def test_an_id_invalid_in_gymnasium_is_rejected_by_register(id: str):
    env, _ = make("GridWorld-v0")
    with pytest.raises(ValidationError):
        register(id, env)


def test_without_gymnasium_the_import_names_the_package_to_install():
    result = python("import sys; sys.modules['gymnasium'] = None\nimport tropism.gym")
    assert "MissingExtraError" in result.stderr
    assert 'pip install "tropism[gym]"' in result.stderr


@pytest.mark.slow
def test_a_space_without_gymnasium_names_it_too():
    code = "import sys; sys.modules['gymnasium'] = None\nimport tropism; tropism.Discrete(2).to_gymnasium()"
    assert 'pip install "tropism[gym]"' in python(code).stderr
