"""The file format of checkpoints: stored files stay readable, and a file that does not fit is rejected in words."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.fixtures.train.make_checkpoint import ACTIONS, FILE, greedy_actions
from tests.train.worlds import Net, brief

from tropism.errors import ValidationError
from tropism.train import checkpoint
from tropism.train.run import CHECKPOINT, train


class WiderNet(Net):
    """Not the network that was saved: it has another array."""

    extra: Any

    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        super().__init__(observation_space, action_space, key=key)
        self.extra = jax.numpy.zeros(3)


def test_stored_checkpoint_is_loaded_and_acts_as_when_it_was_written() -> None:
    np.testing.assert_allclose(greedy_actions(FILE), json.loads(ACTIONS.read_text()), rtol=1e-4, atol=1e-5)
    training = checkpoint.load_training(FILE)
    assert (training.id, training.params, training.seeds) == ("Pendulum-v1", {"gravity": 9.0}, 2)
    assert (training.config.algorithm, training.config.hidden, checkpoint.load_steps(FILE)) == ("ppo", 4, 32)


def test_stored_checkpoint_resumes(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(FILE.read_bytes())
    training = checkpoint.load_training(FILE)
    longer = training._replace(config=training.config.__class__(**{**vars(training.config), "total_steps": 48}))
    _, curve = train(longer, tmp_path, resume=True)
    assert [steps for steps, _ in curve] == [16, 32, 48]


def test_file_has_names_and_no_classes() -> None:
    _, header, _ = FILE.read_bytes().split(b"\n", 2)
    assert json.loads(header)["config"]["learning_rate"] == 0.1
    paths = [spec["path"] for spec in json.loads(header)["arrays"]]
    assert ".agent.weights.actor.layers[0].weight" in paths
    assert not any(name in header.decode() for name in ("ActorCritic", "TrainState", "PPO", "Adam"))


def test_saved_state_is_loaded_exactly(tmp_path: Path) -> None:
    training = brief("GridWorld-v0", updates=1)
    state, history = train(training, tmp_path)
    stored, again, same = checkpoint.load(tmp_path / CHECKPOINT)
    assert (stored, same) == (training, history)
    assert jax.tree.structure(again) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, again, state)


@pytest.mark.parametrize("version", [b"3", b"5"])
def test_other_versions_are_refused_in_a_sentence(version: bytes, tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    path.write_bytes(FILE.read_bytes().replace(b"tropism-train-4", b"tropism-train-" + version, 1))
    with pytest.raises(ValidationError, match=rf"version {version.decode()}, this Tropism reads version 4"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"shape": [2, 4, 7]},
            r"it has \.agent\.\S+ as float32\[2, 4, 7\], expected \.agent\.\S+ as float32\[2, 4, 4\]",
        ),
        ({"dtype": "float16"}, "as float16"),
        ({"path": ".agent.other"}, r"it has \.agent\.other as"),
    ],
)
def test_first_array_that_differs_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    first, header, data = FILE.read_bytes().split(b"\n", 2)
    settings = json.loads(header)
    spec = next(spec for spec in settings["arrays"] if spec["path"] == ".agent.weights.actor.layers[0].weight")
    spec |= change
    path = tmp_path / CHECKPOINT
    path.write_bytes(b"\n".join([first, json.dumps(settings).encode(), data]))
    with pytest.raises(ValidationError, match=message):
        checkpoint.load(path)


def test_changed_network_is_named_by_its_arrays(tmp_path: Path) -> None:
    train(brief("GridWorld-v0", network=Net, updates=1), tmp_path)
    with pytest.raises(ValidationError, match=r"expected \.agent\.weights\.extra as float32\[1, 3\]"):
        checkpoint.load(tmp_path / CHECKPOINT, WiderNet)


@pytest.mark.parametrize("end", [30, -1, -1000])
def test_incomplete_file_is_rejected(end: int, tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    path.write_bytes(FILE.read_bytes()[:end])
    with pytest.raises(ValidationError, match="a complete file"):
        checkpoint.load(path)
