"""Tabular Q-learning against value iteration, and through the commands."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from tropism import PlumeNav
from tropism.cli import app
from tropism.core.registry import make
from tropism.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from tropism.errors import ValidationError
from tropism.plume import sensors
from tropism.train.evaluation import evaluate
from tropism.train.q_learning import Bins, QLearning, QLearningConfig


def optimal_values(size: int, goal: float, cost: float, gamma: float) -> np.ndarray:
    """Value iteration in the corridors of GridWorld, an implementation of its own: (row, column, action)."""
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    values = np.zeros((size, size, 4))
    for _ in range(200):
        best = values.max(-1)
        best[-1, -1] = 0
        for row in range(size):
            for column in range(size):
                for action, (down, right) in enumerate(moves):
                    at = min(max(row + down, 0), size - 1), min(max(column + right, 0), size - 1)
                    arrived = at == (size - 1, size - 1)
                    values[row, column, action] = (goal if arrived else cost) + gamma * best[at] * (not arrived)
    return values


@pytest.mark.slow
def test_the_table_of_a_grid_is_that_of_value_iteration() -> None:
    env, params = make("GridWorld-v0", size=3)
    config = QLearningConfig(num_envs=16, num_steps=100, total_steps=64_000, gamma=0.9, epsilon=1.0, bins=3)
    algorithm = QLearning(env, params, config)
    state = algorithm.init(jax.random.key(0))
    update = jax.jit(lambda state: algorithm.update(state)[0])
    for _ in range(config.num_updates):
        state = update(state)
    expected = optimal_values(3, float(params.goal_reward), float(params.step_reward), 0.9)
    found = np.array(state.table).reshape(3, 3, 4)
    found[-1, -1] = expected[-1, -1]  # an episode ends there
    np.testing.assert_allclose(found, expected, atol=0.01)
    result = evaluate("greedy", env, params, algorithm.policy(state, greedy=True), 0, 8)
    assert result.lengths.tolist() == [4] * 8


def test_rows_are_distinct_for_distinct_bins() -> None:
    box = Bins(Box(np.array([0.0, -2.0]), np.array([1.0, 2.0])), 4)
    rows = {int(box.row(jnp.array([x, y]))) for x in (0.1, 0.3, 0.6, 1.0) for y in (-1.9, -0.5, 0.5, 2.0)}
    assert rows == set(range(16))
    endless = Bins(Box(-np.inf, np.inf, (1,)), 4)
    assert [int(endless.row(jnp.array([x]))) for x in (-9.0, -0.5, 0.5, 1e30)] == [0, 1, 2, 3]
    assert int(Bins(Discrete(5, start=2), 9).row(4)) == 2
    assert int(Bins(MultiDiscrete([2, 3]), 9).row(jnp.array([1, 2]))) == 5
    assert int(Bins(MultiBinary(3), 9).row(jnp.array([1, 0, 1]))) == 5
    with pytest.raises(ValidationError, match="Discrete"):
        Bins(Dict({"a": Discrete(2)}), 9).sizes  # noqa: B018


def test_impossible_tables_are_rejected() -> None:
    env, params = make("PlumeNavPuffs-v0")
    with pytest.raises(ValidationError, match="action_space"):
        QLearning(env, params, QLearningConfig())
    env = PlumeNav(sensor=sensors.FullField())
    with pytest.raises(ValidationError, match="fewer bins"):
        QLearning(env, env.default_params(), QLearningConfig())
    wrong: tuple[dict[str, Any], ...] = ({"bins": 0}, {"gamma": 1.5}, {"epsilon": -1.0})
    for changes in wrong:
        with pytest.raises(ValidationError, match=next(iter(changes))):
            QLearningConfig(**changes)


@pytest.mark.slow
def test_the_command_trains_and_evaluates_a_table(tmp_path: Path) -> None:
    words = ["train", "GridWorld-v0", "--algorithm", "q-learning", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, [*words, "--num-steps", "100", "--total-steps", "32000"])
    assert result.exit_code == 0, result.output
    assert "a table of 100 × 4 values" in result.stderr
    greedy = ["evaluate", "GridWorld-v0", "--policy", str(tmp_path), "--greedy", "--episodes", "4", "--json"]
    [row] = json.loads(CliRunner().invoke(app, greedy).stdout)["policies"]
    assert row["steps"]["mean"] == 8


@pytest.mark.slow
def test_a_plume_with_binned_observations_is_learned() -> None:
    """In a Gaussian, with its position on a coarse grid, the agent learns to find the source."""
    env: Any = PlumeNav(sensor=sensors.Position(), grid_size=(16, 16), goal_radius=1.0, max_steps=60)
    params = env.default_params()
    config = QLearningConfig(num_envs=64, num_steps=50, total_steps=160_000, gamma=0.95, bins=16)
    algorithm = QLearning(env, params, config)
    state = algorithm.init(jax.random.key(0))
    update = jax.jit(lambda state: algorithm.update(state)[0])
    for _ in range(config.num_updates):
        state = update(state)
    result = evaluate("greedy", env, params, algorithm.policy(state, greedy=True), 0, 64)
    assert result.search is not None
    assert result.search.found.mean() > 0.95
