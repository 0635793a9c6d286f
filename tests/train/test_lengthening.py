"""A resumed training can be extended; the steps already done do not change."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.train.worlds import brief
from typer.testing import CliRunner

from tropism.cli import app
from tropism.errors import ValidationError
from tropism.train import checkpoint
from tropism.train.run import CHECKPOINT, train
from tropism.train.updates import run_updates

SHORT, LONG = brief("GridWorld-v0", updates=4), brief("GridWorld-v0", updates=10)


def assert_same(first: Any, second: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(first), jax.tree.leaves(second))


@pytest.mark.slow
def test_finished_training_continues_to_a_larger_total(tmp_path: Path) -> None:
    """It continues from the saved state, at the learning rate of the longer schedule."""
    state, curve = train(SHORT, tmp_path)
    longer, longer_curve = train(LONG, tmp_path, resume=True)
    assert longer_curve[: len(curve)] == curve
    assert longer_curve[-1][0] == 640
    expected, _ = run_updates(LONG.make_algorithm(), state, 6)
    assert_same(longer, expected)
    assert checkpoint.load_training(tmp_path / CHECKPOINT) == LONG


@pytest.mark.slow
def test_interrupted_extended_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        train(SHORT, tmp_path / name)
    whole, curve = train(LONG, tmp_path / "whole", resume=True)
    with pytest.raises(KeyboardInterrupt):
        train(LONG, tmp_path / "killed", interrupt_at(448), resume=True)
    again, same_curve = train(LONG, tmp_path / "killed", resume=True)
    assert curve == same_curve
    assert_same(whole, again)


def interrupt_at(steps: int) -> Any:
    def show(report: Any) -> None:
        if report.steps >= steps:
            raise KeyboardInterrupt

    return show


def test_total_below_the_steps_done_is_rejected(tmp_path: Path) -> None:
    train(SHORT, tmp_path)
    before = (tmp_path / CHECKPOINT).read_bytes()
    with pytest.raises(ValidationError, match="total_steps is 192; expected at least 256, the steps already done"):
        train(brief("GridWorld-v0", updates=3), tmp_path, resume=True)
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_only_the_total_may_differ(tmp_path: Path) -> None:
    train(SHORT, tmp_path)
    with pytest.raises(ValidationError, match="started with"):
        train(brief("GridWorld-v0", updates=10, gamma=0.9), tmp_path, resume=True)


def test_train_command_extends_a_training(tmp_path: Path) -> None:
    train(SHORT, tmp_path)
    command = ["train", "GridWorld-v0", "--out", str(tmp_path), "--resume", "--total-steps"]
    result = CliRunner().invoke(app, [*command, "640", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["steps"] == 640
    with pytest.raises(ValidationError, match="at least 640"):
        CliRunner().invoke(app, [*command, "320"], catch_exceptions=False)
