"""The policies of `tropism record` are those of `tropism evaluate`."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.cli.command import run

from tropism import Session, make
from tropism.cli.policies import DRAW_SIZE, policy_of
from tropism.core.rollout.policy import RandomPolicy
from tropism.record import Reader
from tropism.train.policies import SteppedPolicy
from tropism.train.runner import LocalRunner


@pytest.mark.slow
@pytest.mark.parametrize(("id", "steps"), [("CartPole-v1", DRAW_SIZE + 3), ("Pendulum-v1", 3), ("Echo-v0", 3)])
def test_random_actions_equal_those_of_evaluate(id: str, steps: int):
    session = Session(*make(id))
    fast, slow = policy_of("random", session, False), SteppedPolicy(RandomPolicy(session.action_space))
    first = session.reset(seed=0)
    for seed in (5, 2**63 + 1, 5):
        fast.begin(seed)
        slow.begin(seed)
        drawn = [fast.act(first.obs) for _ in range(steps)]
        assert drawn == [session.action_space.coerce(slow.act(LocalRunner(session).current())) for _ in range(steps)]
        assert any(one != other for one, other in pairwise(drawn))


@pytest.mark.slow
def test_recorded_returns_equal_evaluated_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "train", "CartPole-v1", "--total-steps", "4096", "--num-envs", "4", "--out", "agent") == 0
    for id, policy, *more in (("CartPole-v1", "agent", "--greedy"), ("PlumeNavMeander-v0", "cast-and-surge")):
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
    assert "needs a server" in capsys.readouterr().err
