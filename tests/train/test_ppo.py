"""PPO learns, and a killed training resumes bit for bit."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from tropism.core.registry import make, presets
from tropism.errors import ValidationError
from tropism.train import checkpoint
from tropism.train.policies import load
from tropism.train.ppo import PPO, PPOConfig
from tropism.train.run import CHECKPOINT, TrainingReport, train
from tropism.train.training import Training
from tropism.train.updates import init_agents_compiled, run_updates

SHORT = Training(
    "CartPole-v1", {}, {}, PPOConfig(total_steps=20_000, num_envs=8, recurrent=True, hidden=16), seed=0, seeds=2
)


class KilledError(Exception):
    """Simulates a killed training."""


def killed_after(reports: int) -> Any:
    shown: list[TrainingReport] = []

    def show(report: TrainingReport) -> None:
        shown.append(report)
        if len(shown) == reports:
            raise KilledError

    return show


@pytest.mark.slow
def test_killed_training_resumes_bit_for_bit(tmp_path: Path):
    whole, curve = train(SHORT, tmp_path / "whole")
    with pytest.raises(KilledError):
        train(SHORT, tmp_path / "killed", killed_after(7))
    resumed, same_curve = train(SHORT, tmp_path / "killed", resume=True)
    assert curve == same_curve
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(whole), jax.tree.leaves(resumed))


def assert_agent_equal(state: Any, agent: int, other: Any, other_agent: int) -> None:
    for leaf, other_leaf in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(leaf[agent], other_leaf[other_agent])


@pytest.mark.slow
def test_agent_does_not_depend_on_how_many_are_trained(tmp_path: Path):
    few = SHORT._replace(config=PPOConfig(total_steps=2048, num_envs=8, num_steps=64, recurrent=True, hidden=16))
    four, curve = train(few._replace(seeds=4), tmp_path / "four")
    sixteen, long_curve = train(few._replace(seeds=16), tmp_path / "sixteen")
    alone, _ = train(few._replace(seed=3, seeds=1), tmp_path / "alone")
    for agent in range(4):
        assert_agent_equal(four, agent, sixteen, agent)
    assert_agent_equal(four, 3, alone, 0)
    assert curve == [[steps, returns[:4]] for steps, returns in long_curve]


@pytest.mark.slow
def test_agent_does_not_depend_on_its_chunk():
    """On an accelerator a program updates several agents; the last one is padded."""
    trainer, keys = SHORT.make_algorithm(), SHORT._replace(seeds=6).keys
    six, metrics = run_updates(trainer, init_agents_compiled(trainer, keys, width=4), 2, width=4)
    one, _ = run_updates(trainer, init_agents_compiled(trainer, keys[5:], width=4), 2, width=4)
    assert metrics.loss.shape == (6, 2)
    assert_agent_equal(six, 5, one, 0)


@pytest.mark.slow
def test_update_compiles_once():
    """Output types equal input types: a weak type would cause a second compilation."""
    trainer = SHORT.make_algorithm()
    before = SHORT.start(trainer)
    after, _ = run_updates(trainer, before, 1)
    types = [
        [jax.typeof(leaf) for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_array))] for state in (before, after)
    ]
    assert types[0] == types[1]


@pytest.mark.slow
def test_resume_with_other_settings_is_rejected(tmp_path: Path):
    train(SHORT, tmp_path)
    with pytest.raises(ValidationError, match="started with"):
        train(SHORT._replace(seed=1), tmp_path, resume=True)
    policy: Any = load(tmp_path / CHECKPOINT, seed=1)
    assert policy.agent.network.hidden == SHORT.config.hidden
    with pytest.raises(ValidationError, match="agents"):
        load(tmp_path / CHECKPOINT, seed=2)


def test_most_seeds_learn_cartpole_in_a_fifth_of_the_default_steps(tmp_path: Path):
    preset: dict[str, Any] = presets("ppo")["CartPole-v1"] | {"total_steps": 100_000}
    config = PPOConfig(**preset)
    training = Training("CartPole-v1", {}, {}, config, seed=3, seeds=4)
    _, curve = train(training, tmp_path)
    best = np.max([returns for _, returns in curve[-10:]], axis=0)
    assert (best > 400).sum() >= 3


@pytest.mark.parametrize(
    "numbers",
    [
        {"num_envs": 0},
        {"learning_rate": -1.0},
        {"gamma": 1.5},
        {"minibatches": 7},
        {"total_steps": 10},
        {"recurrent": True, "num_envs": 6},
    ],
)
def test_invalid_hyperparameters_are_rejected(numbers: dict[str, Any]):
    with pytest.raises(ValidationError):
        PPOConfig(**numbers)


def test_file_that_is_not_a_checkpoint_is_rejected(tmp_path: Path):
    other = tmp_path / "other"
    other.write_bytes(b"hello\n")
    for path in (other, tmp_path / "nothing"):
        with pytest.raises(ValidationError, match="tropism train"):
            checkpoint.load(path)


@pytest.mark.slow
def test_continuous_actions_stay_in_bounds(tmp_path: Path):
    config = PPOConfig(total_steps=1024, num_envs=8, num_steps=32, hidden=16)
    train(Training("Pendulum-v1", {}, {}, config, seed=0, seeds=1), tmp_path)
    agent: Any = load(tmp_path / CHECKPOINT)
    actions = [agent.act(jax.random.key(i), agent.init(None), np.ones(3, np.float32))[0] for i in range(20)]
    assert all(agent.actions.space.contains(np.asarray(action)) for action in actions)


@pytest.mark.slow
def test_loss_replays_the_memories_of_the_rollout():
    """Before the first gradient step, the replayed sequences give the probabilities of the rollout."""
    config = PPOConfig(total_steps=256, num_envs=4, num_steps=64, recurrent=True, hidden=8, minibatches=1, entropy=0.0)
    trainer = PPO(*make("GridWorld-v0", params={"max_steps": 9}), config)
    state = trainer.init(jax.random.key(0))
    _, samples = eqx.filter_jit(trainer._collect)(state, jax.random.key(1))  # pyright: ignore[reportPrivateUsage]
    assert samples.done.sum() >= 4 * 6  # memories are reset midway
    advantage = jax.random.normal(jax.random.key(2), samples.reward.shape)
    data = trainer._sequences(state, samples, advantage)  # pyright: ignore[reportPrivateUsage]
    loss = trainer._loss(state.agent, data)  # pyright: ignore[reportPrivateUsage]
    objective = 0.0  # before any change the ratio is 1, and normalized advantages sum to 0
    error = 0.5 * float((advantage**2).mean())  # values are unchanged, so the error is the advantage
    expected = -objective + config.value_weight * error
    assert float(loss) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_recurrent_agent_depends_on_its_last_action():
    """Equal observations after different actions give different outputs."""
    trainer = PPO(*make("GridWorld-v0"), PPOConfig(recurrent=True, hidden=8))
    agent = trainer.init(jax.random.key(0)).agent
    blank, x = agent.memory(), np.zeros(2, np.float32)
    outputs = [agent(x, agent.remember(blank, np.int32(action)))[0] for action in (0, 1)]
    assert not np.allclose(*outputs, atol=1e-7)
