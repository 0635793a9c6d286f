"""Long commands announce their duration as soon as it can be estimated."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.worlds import brief

from tropism.cli.evaluate import _with_progress  # pyright: ignore[reportPrivateUsage]
from tropism.cli.terminal import announce_duration
from tropism.core.registry import make
from tropism.train.evaluation import evaluate
from tropism.train.policies import resolve_policy
from tropism.train.run import TrainingReport, train


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.0, ""),
        (34.0, "about 30 seconds"),
        (240.0, "about 4 minutes"),
        (3600.0, "about 60 minutes"),
        (9000.0, "about 2.5 hours"),
    ],
)
def test_durations_are_printed_with_a_unit(seconds: float, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    announce_duration("train", seconds)
    printed = capsys.readouterr().err
    assert printed == (f"train: {text} on this machine.\n" if text else "")


@pytest.mark.slow
def test_training_estimates_its_duration_after_two_updates(tmp_path: Path) -> None:
    """The reported speed excludes compilation, which takes as long as hundreds of these updates."""
    announced: list[tuple[int, float]] = []
    reports: list[TrainingReport] = []
    training = brief("GridWorld-v0", updates=200)
    start = time.perf_counter()
    train(training, tmp_path, reports.append, on_estimate=lambda *each: announced.append(each))
    took = time.perf_counter() - start
    [(steps, seconds)] = announced
    assert steps == 2 * 64
    assert 0 < seconds < took
    speeds = [report.steps_per_second for report in reports]
    assert speeds[0] > np.median(speeds) / 20


@pytest.mark.slow
def test_train_announces_its_steps_and_the_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tropism.cli import main

    small = ["--num-envs", "4", "--num-steps", "16", "--epochs", "1", "--minibatches", "2", "--total-steps", "12800"]
    monkeypatch.setattr("sys.argv", ["tropism", "train", "GridWorld-v0", "--out", str(tmp_path), *small])
    with pytest.raises(SystemExit):
        main()
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("GridWorld-v0: 12,800 steps in 200 updates, a vector network.")
    assert "Compilation takes" in first


def test_remaining_time_is_announced_after_two_progress_reports(capsys: pytest.CaptureFixture[str]) -> None:
    def run(show: Callable[[int], None]) -> str:
        show(1)
        time.sleep(0.06)
        show(2)
        show(3)
        return "done"

    assert _with_progress("agent", 10_002, run) == "done"
    [minutes] = [line for line in capsys.readouterr().err.splitlines() if "on this machine" in line]
    assert minutes.startswith(("agent: about 10 minutes", "agent: about 11 minutes", "agent: about 12 minutes"))


@pytest.mark.slow
@pytest.mark.parametrize("id", ["CartPole-v1", "PlumeNav-v0"])
def test_batched_evaluation_equals_unbatched(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env, params = make(id, params={"max_steps": 20})
    policy: Any = resolve_policy("random", env, params)
    whole = evaluate("random", env, params, policy, 7, 13)
    shown: list[int] = []
    monkeypatch.setattr(sys.modules["tropism.train.evaluation"], "MAX_BATCH", 6)
    parts = evaluate("random", env, params, policy, 7, 13, shown.append)
    assert shown == [5, 10, 13]
    assert parts.lengths.tolist() == whole.lengths.tolist()
    np.testing.assert_allclose(parts.returns, whole.returns, rtol=1e-6)
    if whole.search is not None:
        assert parts.search is not None
        np.testing.assert_array_equal(parts.search.found, whole.search.found)
        np.testing.assert_allclose(parts.search.paths, whole.search.paths, rtol=1e-6)
        np.testing.assert_allclose(parts.search.efficiency, whole.search.efficiency, rtol=1e-6)
