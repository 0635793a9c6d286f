"""Non-finite numbers stop a training run with a precise message; the last good checkpoint stays on disk."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.train.worlds import Net, brief

from tropism.cli import main
from tropism.core.spaces import Box
from tropism.errors import NonFiniteError, ObservationWarning
from tropism.train import checkpoint
from tropism.train.faults import NO_FAULT, OUTSIDE_SPACE, find_fault
from tropism.train.run import CHECKPOINT, train

WORLDS = "tests.train.worlds"
STEPS, ENVS = 4, 3


def place_of(key: int) -> tuple[int, int, int]:
    """`(0 before a step or 1 after it, row, environment)`."""
    after, number = key % 2, key % OUTSIDE_SPACE // 2
    return after, number // ENVS - after, number % ENVS


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 23), st.sampled_from([jnp.nan, jnp.inf, 2.0])), max_size=3))
def test_find_fault_agrees_with_a_plain_search(faults: list[tuple[int, int, float]]) -> None:
    arrays = [np.zeros((STEPS, ENVS, 2), np.float32), np.zeros((STEPS, ENVS, 2), np.float32), np.zeros((STEPS, ENVS))]
    for which, index, value in faults:
        arrays[which].flat[index % arrays[which].size] = value
    obs, next_obs, reward = arrays
    found = jax.device_get(compiled_find_fault(*arrays))
    spoilt, outside = [], []
    for row in range(STEPS):
        for env in range(ENVS):
            before, after = obs[row, env], next_obs[row, env]
            spoilt += [((row, 0), env)] if not np.isfinite(before).all() else []
            spoilt += [((row + 1, 1), env)] if not np.isfinite([*after, reward[row, env]]).all() else []
            outside += [((row, 0), env)] if (before > 1).any() else []
            outside += [((row + 1, 1), env)] if (after > 1).any() else []
    expected = spoilt or outside
    if not expected:
        assert found.key == NO_FAULT
        return
    (number, after), env = min(expected, key=lambda each: (each[0][0], each[1], each[0][1]))
    assert (found.key < OUTSIDE_SPACE) == bool(spoilt)
    assert place_of(int(found.key)) == (after, number - after, env)
    np.testing.assert_array_equal(found.obs, (next_obs if after else obs)[number - after, env])
    if after:
        np.testing.assert_array_equal(found.reward, np.float32(reward[number - 1, env]))


@jax.jit
def compiled_find_fault(obs: Any, next_obs: Any, reward: Any) -> Any:
    return find_fault(Box(-1.0, 1.0, (2,)), obs, next_obs, reward)


def test_nan_reward_stops_training_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    """Step 37 of four parallel environments is step 145 in total, in the third update of 64 steps."""
    with pytest.raises(NonFiniteError) as stopped:
        train(brief(f"{WORLDS}:NanReward"), tmp_path)
    words = str(stopped.value)
    assert words.startswith("reward is nan at step 145 (update 3, environment 0)")
    assert f"The last good agent is in {tmp_path / CHECKPOINT}" in words
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT]
    _, state, history = checkpoint.load(tmp_path / CHECKPOINT)
    assert [steps for steps, _ in history] == [64, 128]
    for leaf in jax.tree.leaves((state.agent, state.optimizer, state.obs_statistics, state.return_statistics)):
        assert np.isfinite(leaf).all()
    with pytest.raises(NonFiniteError) as again:
        train(brief(f"{WORLDS}:NanReward"), tmp_path, resume=True)
    assert str(again.value) == words


def test_train_command_reports_the_non_finite_quantity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--num-envs", "4", "--num-steps", "16", "--total-steps", "384", "--epochs", "1", "--minibatches", "2"]
    options += ["--out", str(tmp_path / "agent")]
    monkeypatch.setattr("sys.argv", ["tropism", "train", f"{WORLDS}:NanReward", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    words = capsys.readouterr().err
    assert "reward is nan at step 145 (update 3, environment 0)" in words
    assert "Traceback" not in words


@pytest.mark.slow
def test_infinite_observation_entry_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"observation\['place'\]\[1\] is inf at step 145 \(update 3, envir"):
        train(brief(f"{WORLDS}:InfiniteObservation"), tmp_path)


@pytest.mark.slow
def test_nan_observation_after_the_first_reset_is_reported(tmp_path: Path) -> None:
    expected = r"observation\[0\] is nan after the first reset \(environment 0\).*Nothing was saved"
    with pytest.raises(NonFiniteError, match=expected):
        train(brief(f"{WORLDS}:NanReset"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_message_names_the_agent_if_there_are_several(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"reward is nan at step 145 \(update 3, environment 0, agent 0\)"):
        train(brief(f"{WORLDS}:NanReward", seeds=2), tmp_path)


class NanValue(Net):
    def __call__(self, obs: Any, memory: Any) -> Any:
        outputs, value, memory = super().__call__(obs, memory)
        return outputs, jnp.where(value == value, jnp.log(-1.0 - value**2), 0.0), memory


class NanGradient(Net):
    """The loss is finite, but its gradient is not."""

    def __call__(self, obs: Any, memory: Any) -> Any:
        outputs, value, memory = super().__call__(obs, memory)
        return outputs, jnp.sqrt(0.0 * value), memory


@pytest.mark.slow
def test_non_finite_loss_stops_training(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"loss is nan at step 64 \(update 1\)"):
        train(brief("GridWorld-v0", network=NanValue), tmp_path)


@pytest.mark.slow
def test_agent_with_non_finite_weights_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match=r"agent\.weights\.actor.* is nan at step 64 \(update 1\)"):
        train(brief("GridWorld-v0", network=NanGradient, minibatches=1), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_observation_outside_its_space_is_reported_once(tmp_path: Path) -> None:
    expected = (
        r"observation\[1\] is 1\.75, outside Box\(0\.0, 1\.0, \(2,\), float32\), "
        r"at step 77 \(update 2, environment 0\)\. Training continues"
    )
    with pytest.warns(ObservationWarning, match=expected) as warned:
        _, history = train(brief(f"{WORLDS}:Outside"), tmp_path)
    assert len(warned) == 1
    assert history[-1][0] == 6 * 64


def test_observation_of_wrong_shape_is_reported(tmp_path: Path) -> None:
    with pytest.warns(ObservationWarning, match=r"observation has the shape \(2,\) and dtype float32, outside Box"):
        train(brief(f"{WORLDS}:WrongShape", updates=1), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "ConnectFour-v0"])
def test_built_in_environments_stay_in_their_spaces(id: str, tmp_path: Path) -> None:
    train(brief(id, updates=2, num_steps=128, total_steps=2048), tmp_path)  # a warning would be an error
