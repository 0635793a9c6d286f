"""PPO learns, and a killed training goes on as if nothing had happened."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from tropism.core.registry import make
from tropism.errors import ValidationError
from tropism.train import checkpoint
from tropism.train.config import Config
from tropism.train.ppo import Trainer, run_updates
from tropism.train.presets import PRESETS
from tropism.train.run import CHECKPOINT, Training, TrainingReport, train
from tropism.train.trained import load

SHORT = Training(
    "CartPole-v1", {}, {}, Config(total_steps=20_000, num_envs=8, recurrent=True, hidden=16), seed=0, seeds=2
)


class KilledError(Exception):
    """The training ends here."""


def killed_after(reports: int) -> Any:
    seen: list[TrainingReport] = []

    def show(report: TrainingReport) -> None:
        seen.append(report)
        if len(seen) == reports:
            raise KilledError

    return show


@pytest.mark.slow
def test_a_killed_training_goes_on_bit_for_bit(tmp_path: Path):
    whole, curve = train(SHORT, tmp_path / "whole")
    with pytest.raises(KilledError):
        train(SHORT, tmp_path / "killed", killed_after(7))
    resumed, same_curve = train(SHORT, tmp_path / "killed", resume=True)
    assert curve == same_curve
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(whole), jax.tree.leaves(resumed))


@pytest.mark.slow
def test_an_update_is_compiled_once():
    """What comes out is of the very types that went in: a weak one would be another program."""
    trainer = SHORT.trainer()
    before = SHORT.start(trainer)
    after, _ = run_updates(trainer, before, 1)
    types = [
        [jax.typeof(leaf) for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_array))] for state in (before, after)
    ]
    assert types[0] == types[1]


@pytest.mark.slow
def test_a_resumed_training_is_the_one_that_was_begun(tmp_path: Path):
    train(SHORT, tmp_path)
    with pytest.raises(ValidationError, match="started with"):
        train(SHORT._replace(seed=1), tmp_path, resume=True)
    assert load(tmp_path / CHECKPOINT, seed=1).agent.network.hidden == SHORT.config.hidden
    with pytest.raises(ValidationError, match="agents"):
        load(tmp_path / CHECKPOINT, seed=2)


def test_cartpole_is_learnt_by_most_seeds_in_a_fifth_of_the_default_steps(tmp_path: Path):
    preset: dict[str, Any] = PRESETS["CartPole-v1"] | {"total_steps": 100_000}
    config = Config(**preset)
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
def test_numbers_that_cannot_work_are_refused(numbers: dict[str, Any]):
    with pytest.raises(ValidationError):
        Config(**numbers)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path):
    other = tmp_path / "other"
    other.write_bytes(b"hello\n")
    for path in (other, tmp_path / "nothing"):
        with pytest.raises(ValidationError, match="tropism train"):
            checkpoint.load(path)


@pytest.mark.slow
def test_continuous_actions_stay_in_their_box(tmp_path: Path):
    config = Config(total_steps=1024, num_envs=8, num_steps=32, hidden=16)
    train(Training("Pendulum-v1", {}, {}, config, seed=0, seeds=1), tmp_path)
    agent = load(tmp_path / CHECKPOINT)
    actions = [agent.act(jax.random.key(i), agent.init(None), np.ones(3, np.float32))[0] for i in range(20)]
    assert all(agent.actions.space.contains(np.asarray(action)) for action in actions)


@pytest.mark.slow
def test_learning_remembers_what_acting_remembered():
    """Before the first step of learning, replaying the sequences gives the very probabilities that were acted on."""
    config = Config(total_steps=256, num_envs=4, num_steps=64, recurrent=True, hidden=8, minibatches=1)
    trainer = Trainer(*make("GridWorld-v0", params={"max_steps": 9}), config)
    state = trainer.init(jax.random.key(0))
    _, samples = eqx.filter_jit(trainer._collect)(state, jax.random.key(1))  # pyright: ignore[reportPrivateUsage]
    assert samples.done.sum() >= 4 * 6  # memories are forgotten half-way
    advantage = jax.random.normal(jax.random.key(2), samples.reward.shape)
    data = trainer._sequences(state, samples, advantage)  # pyright: ignore[reportPrivateUsage]
    loss, entropy = trainer._loss(state.agent, data)  # pyright: ignore[reportPrivateUsage]
    gain = 0.0  # where nothing has moved, the ratio is 1 and standardised advantages add up to nothing
    error = 0.5 * float((advantage**2).mean())  # the values are those that were said, so all error is the advantage
    expected = -gain + config.value_weight * error - config.entropy * float(entropy)
    assert float(loss) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_a_recurrent_agent_knows_what_it_did():
    """Two observations that differ only in the action before them lead to other outputs."""
    trainer = Trainer(*make("GridWorld-v0"), Config(recurrent=True, hidden=8))
    agent = trainer.init(jax.random.key(0)).agent
    blank, x = agent.memory(), np.zeros(2, np.float32)
    outputs = [agent(x, agent.remember(blank, np.int32(action)))[0] for action in (0, 1)]
    assert not np.allclose(*outputs, atol=1e-7)
