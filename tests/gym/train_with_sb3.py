"""Trains on our VecEnv with Stable-Baselines3; runs in the virtual environment of that library."""

from importlib import import_module
from typing import Any

import numpy as np

from tropism.gym.sb3 import make_vec_env

sb3: Any = import_module("stable_baselines3")
vec_envs: Any = import_module("stable_baselines3.common.vec_env")
evaluation: Any = import_module("stable_baselines3.common.evaluation")


def main() -> None:
    vec_env = vec_envs.VecMonitor(make_vec_env("CartPole-v1", 8, seed=0))
    assert isinstance(vec_env.venv, vec_envs.VecEnv)
    before, _ = evaluation.evaluate_policy(sb3.PPO("MlpPolicy", vec_env, seed=0), vec_env, 10)
    model = sb3.PPO("MlpPolicy", vec_env, n_steps=64, batch_size=128, seed=0).learn(30_000)
    after, _ = evaluation.evaluate_policy(model, vec_env, 10)
    assert after > before + 50, (before, after)
    normalized = vec_envs.VecNormalize(make_vec_env("Pendulum-v1", 4, seed=1))
    sb3.SAC("MlpPolicy", normalized, learning_starts=40, seed=0).learn(200)
    images = make_vec_env("GridWorld-v0", 2, seed=0, render_mode="rgb_array")
    images.reset()
    assert np.asarray(images.render()).ndim == 3
    print(f"trained from {before} to {after}")


if __name__ == "__main__":
    main()
