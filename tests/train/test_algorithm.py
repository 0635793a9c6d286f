"""Training knows only the `Algorithm` interface: a second algorithm is trained, saved, resumed and evaluated by it."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.train.random_search import LinearPolicy, RandomSearch, RandomSearchConfig
from tests.train.worlds import brief
from typer.testing import CliRunner

from tropism.cli import app
from tropism.core.registry import make
from tropism.errors import NonFiniteError, ValidationError
from tropism.train.algorithm import ALGORITHMS, algorithm_class
from tropism.train.evaluation import evaluate
from tropism.train.policies import load, resolve_policy
from tropism.train.ppo import PPO
from tropism.train.run import CHECKPOINT, train
from tropism.train.training import Training

NAME = RandomSearchConfig.algorithm


def search(updates: int, seeds: int = 2) -> Training:
    config = RandomSearchConfig(num_envs=16, num_steps=100, total_steps=1600 * updates)
    return Training("CartPole-v1", {}, {}, config, seed=0, seeds=seeds)


def interrupt_at(steps: int) -> Any:
    def show(report: Any) -> None:
        if report.steps >= steps:
            raise KeyboardInterrupt

    return show


def test_second_algorithm_is_trained_saved_resumed_and_evaluated(tmp_path: Path) -> None:
    whole, curve = train(search(6), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(search(6), tmp_path / "killed", interrupt_at(4800))
    resumed, same_curve = train(search(6), tmp_path / "killed", resume=True)
    assert curve == same_curve
    assert [steps for steps, _ in curve] == [1600, 3200, 4800, 6400, 8000, 9600]
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)

    env, params = make("CartPole-v1")
    policies: list[Any] = [resolve_policy(f"{tmp_path / 'whole'}@{agent}", env, params) for agent in (0, 1)]
    assert all(isinstance(policy, LinearPolicy) for policy in policies)
    assert not np.array_equal(policies[0].weights, policies[1].weights)
    assert evaluate("linear", env, params, load(tmp_path / "whole" / CHECKPOINT), 0, 16).returns.mean() > 60


def test_command_trains_with_another_algorithm(tmp_path: Path) -> None:
    command = ["train", "CartPole-v1", "--algorithm", NAME, "--out", str(tmp_path), "--num-envs", "4", "--json"]
    sizes = ["--num-steps", "20", "--total-steps", "160"]
    result = CliRunner().invoke(app, [*command, *sizes])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["steps"] == 160
    assert "a linear policy" in result.stderr
    resumed = CliRunner().invoke(app, [*command, "--resume", "--total-steps", "240"])
    assert json.loads(resumed.stdout)["steps"] == 240
    for options, message in ((["--gamma", "0.9"], "no such hyperparameter"), (["--algorithm", "ppo"], NAME)):
        with pytest.raises(ValidationError, match=message):
            CliRunner().invoke(app, [*command, "--resume", *options], catch_exceptions=False)


def test_nonfinite_state_of_any_algorithm_stops_training(tmp_path: Path) -> None:
    training = search(2)
    broken = training._replace(config=RandomSearchConfig(num_envs=16, num_steps=10, total_steps=320, noise=np.inf))
    with pytest.raises(NonFiniteError, match=r"state\['weights'\]\[.*\] is (nan|-?inf) at step 160"):
        train(broken, tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()


def test_algorithms_by_name() -> None:
    assert algorithm_class("ppo") is PPO
    assert algorithm_class(NAME) is RandomSearch
    for name in ALGORITHMS:
        assert algorithm_class(name).Config.algorithm == name
    with pytest.raises(ValidationError, match="ppo, q-learning, or module:Class"):
        algorithm_class("sac")
    with pytest.raises(ValidationError, match=r"derives from tropism\.train\.Algorithm"):
        algorithm_class("tropism.envs.grid_world:GridWorld")


def test_a_host_environment_is_rejected_with_the_reason() -> None:
    with pytest.raises(ValidationError, match="id is 'Echo-v0'; expected a pure environment: training is compiled"):
        search(1)._replace(id="Echo-v0").make_algorithm()


def test_a_training_cannot_be_resumed_with_another_algorithm(tmp_path: Path) -> None:
    train(search(1), tmp_path)
    with pytest.raises(ValidationError, match="started with"):
        train(brief("CartPole-v1", seeds=2), tmp_path, resume=True)
