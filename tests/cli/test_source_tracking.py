"""`tropism evaluate` of source tracking: search times as JSON, as a table, and as a plot."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.command import run


@pytest.mark.slow
def test_search_times_are_printed_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--policy", "infotaxis", "--episodes", "40", "--seed", "0", "--json")
    assert run(monkeypatch, "evaluate", "SourceTracking19x19-v0", *options) == 0
    [row] = json.loads(capsys.readouterr().out)["policies"]
    assert (row["policy"], row["episodes"], row["seed"]) == ("infotaxis", 40, 0)
    assert row["steps"]["low"] < row["steps"]["mean"] < row["steps"]["high"]
    assert row["standard_error"] > 0 <= row["not_found"]
    assert list(row["step_quantiles"]) == ["0.25", "0.5", "0.75", "0.9", "0.99"]


@pytest.mark.slow
def test_distributions_of_search_times_are_plotted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ("--policy", "space-aware-infotaxis", "--policy", "greedy")
    options = ("--arg", "draw_source=false", "--episodes", "20", "-o", str(tmp_path / "out"))
    assert run(monkeypatch, "evaluate", "SourceTracking1D-v0", *policies, *options) == 0
    printed = capsys.readouterr().out
    assert "P(not found)" in printed
    assert "over the same 20 episodes" in printed
    rows = json.loads((tmp_path / "out" / "evaluation.json").read_text())["policies"]
    assert [row["policy"] for row in rows] == ["space-aware-infotaxis", "greedy"]
    pixels = np.asarray(Image.open(tmp_path / "out" / "evaluation.png").convert("RGB"))
    colors = {tuple(color) for color in np.unique(pixels.reshape(-1, 3), axis=0)}
    assert len(colors) > 20
    assert pixels.shape[1] > pixels.shape[0]  # two panels side by side
