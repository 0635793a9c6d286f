"""The native engine gives XLA's bits, on every surface of a session."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.core.lines import HostLine
from tests.ids import PURE

from tropism import Session, make
from tropism.core.compiled.program import program_of
from tropism.core.native.engine import NativeEngine, choose_engine, verify
from tropism.core.native.program import NativeProgram
from tropism.core.native.scalarize import RULES, map_scalars
from tropism.core.native.verdicts import Verdict, load_verdict, save_verdict
from tropism.core.native.verification import sample_actions
from tropism.core.session.compiled import XlaEngine
from tropism.errors import ValidationError

ROOT = Path(__file__).parents[3]


def engine_of(session: Session) -> Any:
    return session._engine  # pyright: ignore[reportPrivateUsage]


def assert_equal(x: Any, y: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, x, y)


def run_both(first: Session, second: Session, actions: list[Any]) -> None:
    """Both give the same timesteps, over as many episodes as the actions take."""
    for action in actions:
        step = first.step(action)
        assert_equal(step, second.step(action))
        if step.terminated or step.truncated:
            assert_equal(first.reset(), second.reset())
            assert first.seed == second.seed


@pytest.mark.parametrize("id", PURE)
def test_auto_equals_xla(id: str) -> None:
    env, params = make(id)
    auto, xla = Session(env, params), Session(env, params, engine="xla")
    assert type(engine_of(xla)) is XlaEngine
    assert_equal(auto.reset(seed=3), xla.reset(seed=3))
    run_both(auto, xla, sample_actions(env.action_space(params), 60))
    assert_equal(auto.timestep, xla.timestep)
    assert_equal(auto.render(), xla.render())


@pytest.mark.parametrize("engines", [("native", "xla"), ("xla", "native")])
@pytest.mark.parametrize("id", ["CartPole-v1", "ConnectFour-v0", "MountainCarContinuous-v0"])
def test_snapshots_continue_on_another_engine(id: str, engines: Any) -> None:
    env, params = make(id)
    actions = sample_actions(env.action_space(params), 12)
    session = Session(env, params, engine=engines[0])
    session.reset(seed=5)
    session.step(actions[0])
    other = Session.restore(session.snapshot(), engine=engines[1])
    assert {type(engine_of(session)), type(engine_of(other))} == {NativeEngine, XlaEngine}
    assert other.snapshot() == session.snapshot()
    run_both(session, other, actions)


def test_forks_are_independent() -> None:
    session = Session(*make("CartPole-v1"), engine="native")
    session.reset(seed=0)
    restore = session.restore_point()
    fork, reseeded = session.fork(), session.fork(seed=9)
    first = session.step(1)
    session.step(1)
    assert_equal(fork.step(1), first)
    assert_equal(restore().step(1), first)
    assert_equal(pickle.loads(pickle.dumps(restore())).step(1), first)
    assert reseeded.step_count == 0
    fresh = session.new_like()
    assert_equal(fresh.reset(seed=0).obs, Session(*make("CartPole-v1"), engine="xla").reset(seed=0).obs)
    assert session.step_count == 2


def test_params_are_read_at_run_time() -> None:
    env, params = make("CartPole-v1")
    session = Session(env, {"gravity": 3.7}, engine="native")
    assert engine_of(session).native is engine_of(Session(env, params, engine="native")).native
    session.reset(seed=0)
    xla = Session(env, {"gravity": 3.7}, engine="xla")
    xla.reset(seed=0)
    run_both(session, xla, [1] * 100)


def test_large_params_are_read_in_place() -> None:
    env, params = make("PlumeNavMovie-v0")
    native, xla = Session(env, params, engine="native"), Session(env, params, engine="xla")
    assert_equal(native.reset(seed=1), xla.reset(seed=1))
    run_both(native, xla, sample_actions(env.action_space(params), 40))


def test_invalid_actions_change_nothing() -> None:
    session = Session(*make("CartPole-v1"), engine="native")
    session.reset(seed=0)
    before = session.snapshot()
    for action in (2, -1, True, 1.0, "left", None):
        with pytest.raises(ValidationError):
            session.step(action)
    assert session.snapshot() == before


def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is wrong by one bit, for some angles."""
    env, params = make("CartPole-v1")
    right = NativeProgram(program_of(env, params), env.action_space(params))
    assert verify(right, params, 300).step

    def wrong(b: Any, equation: Any, x: Any) -> list[Any]:
        float32, int32 = np.dtype(np.float32), np.dtype(np.int32)

        def of(item: Any) -> Any:
            bits = b.bitcast(b.op("cos", float32, item), float32, int32)
            odd = b.convert(b.compare("gt", float32, item, b.constant(0.1, float32)), np.dtype(bool), int32)
            return b.bitcast(b.op("xor", int32, bits, odd), int32, float32)

        return [map_scalars(of, x)]

    monkeypatch.setitem(RULES, "cos", wrong)
    planted = NativeProgram(program_of(env, params), env.action_space(params))
    verdict = verify(planted, params)
    assert not verdict.step
    assert verdict.reset
    assert "in step" in verdict.reason
    assert planted.digest != right.digest  # a stored verdict of the right rule is not used


def test_verdicts_are_stored_if_the_folder_is_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TROPISM_CACHE", str(tmp_path / "cache"))
    assert load_verdict("a") is None
    save_verdict("a", Verdict(True, False, "x in reset 3"))
    assert load_verdict("a") == Verdict(True, False, "x in reset 3")
    (file,) = (tmp_path / "cache").rglob("a.json")
    file.write_text('{"step": 1')
    assert load_verdict("a") is None
    file.write_text('{"step": 1, "reset": 1, "reason": ""}')
    assert load_verdict("a") is None
    (tmp_path / "file").touch()
    monkeypatch.setenv("TROPISM_CACHE", str(tmp_path / "file"))
    save_verdict("a", Verdict(True, True))
    assert load_verdict("a") is None


def test_engines_are_named_with_reasons() -> None:
    puffs, params = make("PlumeNavPuffs-v0")
    assert str(choose_engine(puffs, params)).startswith("xla (")
    assert str(choose_engine(*make("CartPole-v1"), engine="native")) == "native"
    assert str(choose_engine(*make("CartPole-v1"), engine="xla")) == "xla (requested)"
    with pytest.raises(ValidationError, match="PlumeNav has no native engine: "):
        Session(puffs, params, engine="native")
    with pytest.raises(ValidationError, match="one of auto, native, xla"):
        Session(puffs, params, engine="gpu")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError, match="a pure environment"):
        Session(HostLine(), engine="native")


def run_child(*command: str, **variables: str) -> str:
    """The output of a process with XLA's own settings instead of those of the tests."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, *command], env={**environment, **variables}, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "not vectorized" not in done.stderr  # LLVM's warnings
    return done.stdout


def test_everything_falls_back_without_llvmlite(tmp_path: Path) -> None:
    (tmp_path / "llvmlite.py").write_text("raise ImportError('blocked')")
    fallback = "xla (llvmlite is not installed: pip install 'tropism[native]')"
    shown = json.loads(run_child("-m", "tropism", "show", "GridWorld-v0", "--json", PYTHONPATH=str(tmp_path)))
    assert set(shown["engines"].values()) == {fallback}
    lines = run_child("-m", "tropism", "check", "GridWorld-v0", PYTHONPATH=str(tmp_path)).splitlines()
    assert [line for line in lines if "llvmlite" in line] == [f"engine of sessions, batches, rollouts: {fallback}"]


NATIVE = [  # at least, on x86 with fused multiply-adds
    *("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "GridWorld-v0"),
    *("PixelGridWorld-v0", "ConnectFour-v0", "PlumeNav-v0", "PlumeNavMovie-v0"),
]


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(["CartPole-v1", "Acrobot-v1", "PlumeNav-v0", "PlumeNavMovie-v0"], marks=pytest.mark.slow),
        pytest.param(PURE, marks=pytest.mark.full),
    ],
    ids=len,
)
def test_sessions_are_native(ids: list[str], tmp_path: Path) -> None:
    """Steps and resets have XLA's bits over 10,000 steps."""
    script = f"from tests.core.native.verdicts import print_verdicts; print_verdicts({ids})"
    verdicts = json.loads(run_child("-c", script, TROPISM_CACHE=str(tmp_path), JAX_COMPILATION_CACHE_DIR=""))
    assert set(verdicts) == set(ids)
    assert {id: verdicts[id] for id in ids if id in NATIVE and verdicts[id] != "native"} == {}


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_random_programs_never_crash(count: int) -> None:
    script = f"from tests.core.native.random_programs import run; print(run({count}))"
    compiled = int(run_child("-c", script))
    assert compiled > count / 2


@pytest.mark.slow
def test_surfaces_agree_with_and_without_llvmlite(tmp_path: Path) -> None:
    (tmp_path / "llvmlite.py").write_text("raise ImportError('blocked')")
    script = "from tests.core.native.trajectories import print_trajectories; print_trajectories('CartPole-v1')"
    native = json.loads(run_child("-c", script))
    xla = json.loads(run_child("-c", script, PYTHONPATH=str(tmp_path)))
    assert native.pop("engine") == "native"
    assert "llvmlite is not installed" in xla.pop("engine")
    assert native == xla
    assert native["session"] == native["gymnasium"] == native["websocket"]
