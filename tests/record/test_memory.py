"""The memory of a policy in recordings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tropism.cli import app
from tropism.core.registry import make
from tropism.core.rollout.stepped import SteppedPolicy
from tropism.core.session.session import Session
from tropism.errors import ValidationError
from tropism.record import Reader, Recorder, first_difference, session_of

POLICY = """
import jax.numpy as jnp
class Counting:
    def init(self, key):
        return {"steps": jnp.int32(0), "seen": jnp.zeros(4)}
    def act(self, key, memory, obs):
        return memory["steps"] % 2, {"steps": memory["steps"] + 1, "seen": memory["seen"] + obs}
"""


def test_recordings_hold_the_memory_after_each_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counting_policy.py").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["record", "CartPole-v1", "--policy", "counting_policy:Counting", "--episodes", "2", "--steps", "5"]
    result = CliRunner().invoke(app, [*words, "--memory", "-o", "out"])
    assert result.exit_code == 0, result.output
    for episode in Reader("out"):
        assert episode.memories is not None
        seen = np.concatenate([np.zeros((1, 4)), np.cumsum(episode.observations[:-1], axis=0)])
        np.testing.assert_allclose(episode.memories[:, :4], seen, rtol=1e-6)
        np.testing.assert_array_equal(episode.memories[:, 4], np.arange(6))
        assert first_difference(session_of(Reader("out").manifest), episode) is None
    assert "memory" in Reader("out").table().column_names
    rejected = CliRunner().invoke(app, [*words, "-o", "out"])
    assert isinstance(rejected.exception, ValidationError)  # the folder's recordings have a memory
    none = CliRunner().invoke(app, ["record", "CartPole-v1", "--memory", "-o", "none"])
    assert "a policy with memory" in str(none.exception)


def test_a_memory_survives_a_crash_and_is_required_once_declared(tmp_path: Path) -> None:
    recorder = Recorder(Session(*make("CartPole-v1")), tmp_path, memory_size=2)
    recorder.reset(seed=0, memory=[0.0, 0.0])
    recorder.step(1, memory=[1.0, 2.0])
    [episode] = Reader(tmp_path)  # from the tail
    np.testing.assert_array_equal(episode.memories, [[0, 0], [1, 2]])
    for memory in (None, [1.0]):
        with pytest.raises(ValidationError):
            Recorder.step(recorder, 0, memory=memory)
        recorder.reset(seed=0, memory=[0.0, 0.0])
    recorder.close()


def test_recordings_without_a_memory_have_no_column_for_it(tmp_path: Path) -> None:
    with Recorder(Session(*make("CartPole-v1")), tmp_path) as recorder:
        recorder.reset(seed=0)
        with pytest.raises(ValidationError, match="memory"):
            recorder.step(0, memory=[1.0])
    [episode] = Reader(tmp_path)
    assert episode.memories is None
    assert "memory" not in Reader(tmp_path).table().column_names


def test_a_stepped_policy_shows_its_memory_as_a_vector() -> None:
    class Two:
        def init(self, key: Any) -> Any:
            return (np.float32(1), np.arange(3))

        def act(self, key: Any, memory: Any, obs: Any) -> Any:
            return 0, memory

    policy = SteppedPolicy(Two(), pure=False)
    policy.reset(0)
    np.testing.assert_array_equal(policy.memory, [1, 0, 1, 2])
