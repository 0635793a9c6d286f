"""The policies of `tropism record` are those of `tropism evaluate`."""

import json
import sys
from pathlib import Path

import pytest
from tests.cli.command import run

from tropism.record import Reader


@pytest.mark.slow
def test_recorded_returns_equal_evaluated_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "train", "CartPole-v1", "--total-steps", "4096", "--num-envs", "4", "--out", "agent") == 0
    for id, policy, *more in (
        ("CartPole-v1", "agent", "--greedy"),
        ("Pendulum-v1", "random"),
        ("PlumeNavMeander-v0", "cast-and-surge"),
    ):
        options = (id, "--policy", policy, "--episodes", "3", "--seed", "8", "--json", *more)
        capsys.readouterr()
        assert run(monkeypatch, "record", *options, "-o", f"{policy}.out") == 0
        recorded = json.loads(capsys.readouterr().out)
        assert run(monkeypatch, "evaluate", *options) == 0
        [evaluated] = json.loads(capsys.readouterr().out)["policies"]
        assert recorded["mean_return"] == pytest.approx(evaluated["return"]["mean"], rel=1e-5)


def test_random_and_functions_work_without_the_train_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "lefty.py").write_text("def left(obs): return 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tropism.train.policies", None)
    for policy in ("random", "lefty:left"):
        assert run(monkeypatch, "record", "CartPole-v1", "-o", "out", "--episodes", "1", "--policy", policy) == 0
    assert not Reader("out")[1].actions.any()
    capsys.readouterr()
    assert run(monkeypatch, "record", "CartPole-v1", "-o", "out", "--policy", "cast-and-surge") == 2
    assert 'pip install "tropism[train,client]"' in capsys.readouterr().err


def test_language_model_is_rejected_with_a_hint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert run(monkeypatch, "record", "CartPole-v1", "-o", "out", "--policy", "llm:some@http://127.0.0.1:1/v1") == 2
    assert "a server records" in capsys.readouterr().err
