"""isolate: episodes in other processes equal those in this one, and a crash ends only its own episode."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.core.agents import Guessing, Stranger
from tests.isolation import fragile
from tests.isolation.fragile import (
    CODE,
    ORPHANED,
    SECRET,
    STAY,
    Drawing,
    Forgetful,
    Fragile,
    Holding,
    Reluctant,
    Unrepeatable,
)
from tests.isolation.threaded import Threaded

from tropism import DivergedError, Session, StateError, ValidationError, check_environment
from tropism.core.registry import identify, make
from tropism.envs.cartpole import CartPole
from tropism.envs.echo import Echo
from tropism.errors import ProcessError
from tropism.gym import from_gymnasium
from tropism.isolation import IsolatedEnvironment, isolate

CRASHES = {
    fragile.SEGFAULT: "SIGSEGV",
    fragile.EXIT: f"exited with code {CODE}",
    fragile.KILLED: "SIGKILL",
    fragile.QUIT: f"exited with code {CODE}",
}
ALONE = """
import sys
from tests.isolation.fragile import Fragile, HANG
from tropism import Session
from tropism.isolation import isolate
session, other = Session(isolate(Fragile())), Session(isolate(Fragile()))
session.reset(seed=1)
other.reset(seed=1)
print(session._engine.state().pid, other._engine.state().pid, flush=True)
other.step(HANG)
"""
IN_MAIN = """
from tests.isolation.fragile import Fragile
from tropism.isolation import isolate
class Mine(Fragile): ...
isolate(Mine())
"""


@pytest.fixture(scope="module")
def env() -> IsolatedEnvironment:
    return isolate(Fragile())


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pid_of(session: Session) -> int:
    return session._engine.state().pid  # pyright: ignore[reportPrivateUsage]


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def run_episode(session: Session, actions: list[Any], **reset: Any) -> list[Any]:
    """Everything that a session returns about an episode."""
    steps = [session.reset(**reset), *(session.step(action) for action in actions)]
    final = (
        session.describe(),
        session.agent_position_in_image(),
        np.asarray(session.render()).tolist(),
        session.lifecycle,
    )
    return [[step.obs.tolist(), *step[1:]] for step in steps] + list(final)


def test_an_isolated_episode_equals_a_local_one(env: IsolatedEnvironment):
    actions = [STAY, STAY, STAY, fragile.END]
    with Session(env) as isolated, Session(Fragile()) as local:
        for reset in ({"seed": 3}, {}, {"seed": 2**70, "options": {"params": {"gain": 2.5}}}):
            assert run_episode(isolated, actions, **reset) == run_episode(local, actions, **reset)
            assert isolated.seed == local.seed
        assert pid_of(isolated) != os.getpid()
        assert isolated.action_space == local.action_space
        assert isolated.observation_space == local.observation_space
        assert isolated.parse("stay") == local.parse("stay")


@pytest.mark.parametrize("factory", [Guessing, Stranger])
def test_class_based_environments_can_be_isolated(factory: Any):
    action = {"number": 4} if factory is Guessing else {"to": 1}
    with Session(isolate(factory)) as isolated, Session(factory) as local:
        for session in (isolated, local):
            session.reset(seed=5, episode_id="one")
        assert isolated.step(action) == local.step(action)
        assert isolated.describe() == local.describe()
        assert repr(isolated) == repr(local)


def test_gymnasium_environments_can_be_isolated():
    inside = from_gymnasium("CartPole-v1")
    with Session(isolate(inside)) as isolated, Session(inside) as local:
        assert isolated.reset(seed=1).obs.tolist() == local.reset(seed=1).obs.tolist()
        assert isolated.step(1).obs.tolist() == local.step(1).obs.tolist()


def test_an_isolated_environment_passes_the_checks():
    report = check_environment(isolate(Echo()), num_steps=8)
    assert report.ok, str(report)


def test_forks_snapshots_and_pickles_continue_in_their_own_processes(env: IsolatedEnvironment):
    with Session(env) as session:
        session.reset(seed=3)
        session.step(STAY)
        forked, restored = session.fork(), Session.restore(session.snapshot(), env)
        unpickled, reseeded, local = pickle.loads(pickle.dumps(session)), session.fork(9), Session(Fragile())
        local.reset(seed=3)
        local.step(STAY)
        local_fork = local.fork(9)
        assert len({pid_of(each) for each in (session, forked, restored, unpickled, reseeded)}) == 5
        expected, other = local.step(STAY).obs.tolist(), local_fork.step(STAY).obs.tolist()
        for twin in (forked, restored, unpickled):
            assert twin.step(STAY).obs.tolist() == expected
            twin.close()
        assert session.step(STAY).obs.tolist() == expected
        assert reseeded.step(STAY).obs.tolist() == other != expected
        reseeded.close()


def test_a_snapshot_does_not_depend_on_the_process(env: IsolatedEnvironment):
    with Session(env) as isolated, Session(Fragile()) as local:
        for session in (isolated, local):
            session.reset(seed=3, episode_id="one")
            session.step(STAY)
        assert isolated.snapshot() == local.snapshot()
        with Session.restore(isolated.snapshot(), Fragile()) as back:
            assert back.step(STAY).obs.tolist() == local.step(STAY).obs.tolist()


def test_it_has_the_identity_of_the_wrapped_environment():
    inside, _ = make("Echo-v0")
    assert identify(isolate(inside)) == identify(inside) == {"id": "Echo-v0", "arguments": {}}
    assert isolate(inside) == isolate(inside)
    assert isolate(isolate(inside)) == isolate(inside)


@pytest.mark.parametrize(("crash", "reason"), CRASHES.items(), ids=CRASHES.values())
def test_a_crash_is_reported_and_affects_only_its_session(env: IsolatedEnvironment, crash: int, reason: str):
    with Session(env) as session, Session(env) as other, Session(Fragile()) as local:
        for each in (session, other, local):
            each.reset(seed=3)
            each.step(STAY)
        with pytest.raises(ProcessError, match=reason) as raised:
            session.step(crash)
        assert "Fragile" in str(raised.value)
        if crash == fragile.SEGFAULT:
            assert "fragile.py" in str(raised.value.__cause__)
        expected = local.step(STAY)
        assert other.step(STAY).obs.tolist() == expected.obs.tolist()
        assert session.step_count == 1
        assert session.step(STAY).obs.tolist() == expected.obs.tolist(), "the episode is restored"
        with pytest.raises(ProcessError):
            session.step(crash)
        assert session.describe() == local.describe()
        with pytest.raises(ProcessError):
            session.step(crash)
        assert session.reset(seed=4).obs.tolist() == local.reset(seed=4).obs.tolist()
        assert session.step(STAY).obs.tolist() == local.step(STAY).obs.tolist()


def test_a_subprocess_of_the_environment_does_not_hide_its_crash(env: IsolatedEnvironment):
    with Session(env) as session:
        session.reset(seed=3)
        start = time.monotonic()
        with pytest.raises(ProcessError, match=f"exited with code {CODE}"):
            session.step(fragile.ORPHAN)
        assert time.monotonic() - start < ORPHANED / 2


def test_an_interrupted_step_has_no_effect(env: IsolatedEnvironment):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Session(env) as session, Session(Fragile()) as local:
            for each in (session, local):
                each.reset(seed=3)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                session.step(fragile.HANG)
            assert session.step(STAY).obs.tolist() == local.step(STAY).obs.tolist()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_processes_do_not_share_the_global_random_stream():
    with Session(isolate(Drawing())) as one, Session(one.env) as other:
        assert one.reset(seed=3).obs.tolist() != other.reset(seed=3).obs.tolist()


def test_an_episode_killed_between_steps_is_restored(env: IsolatedEnvironment):
    with Session(env) as session, Session(Fragile()) as local:
        for each in (session, local):
            each.reset(seed=3)
        os.kill(pid_of(session), signal.SIGKILL)
        with pytest.raises(ProcessError, match="SIGKILL"):
            session.step(STAY)
        assert session.step(STAY).obs.tolist() == local.step(STAY).obs.tolist()


def test_an_episode_that_cannot_be_replayed_is_lost_until_a_reset():
    with Session(isolate(Unrepeatable())) as session:
        session.reset(seed=3)
        with pytest.raises(ProcessError):
            session.step(fragile.SEGFAULT)
        with pytest.raises(StateError, match="reset"):
            session.step(STAY)
        session.reset(seed=3)
        assert session.step(STAY).obs.tolist()[1] == 1


def test_an_episode_that_diverges_on_replay_is_not_restored():
    with Session(isolate(Forgetful())) as session:
        session.reset(seed=3)
        with pytest.raises(ProcessError):
            session.step(fragile.SEGFAULT)
        with pytest.raises(DivergedError):
            session.step(STAY)


def test_errors_are_raised_as_in_the_worker(env: IsolatedEnvironment):
    with Session(env) as session:
        session.reset(seed=3)
        with pytest.raises(LookupError, match="swordfish") as raised:
            session.step(fragile.RAISE)
        assert "fragile.py" in str(raised.value.__cause__)
        with pytest.raises(ValidationError, match="action is 6; expected another"):
            session.step(fragile.REFUSE)
        with pytest.raises(ProcessError, match="OddError") as odd:
            session.step(fragile.ODD)
        assert SECRET not in str(odd.value)
        assert SECRET in str(odd.value.__cause__)
        with pytest.raises(ProcessError, match="cannot be pickled"):
            session.step(fragile.UNSENDABLE)
        assert session.step(STAY).obs.tolist()[1] == 1, "none of these was a step"


def test_closing_ends_the_process(tmp_path: Path):
    env = isolate(Fragile(str(tmp_path)))
    session = Session(env)
    session.reset(seed=3)
    first = pid_of(session)
    session.reset()
    second = pid_of(session)
    assert not exists(first)
    session.close()
    assert not exists(second)
    assert {path.name for path in tmp_path.iterdir()} == {str(first), str(second)}


def test_a_garbage_collected_session_leaves_no_process(env: IsolatedEnvironment):
    session: Session | None = Session(env)
    session.reset(seed=3)
    pid = pid_of(session)
    del session
    gc.collect()
    with Session(env) as another:
        another.reset(seed=3)
    assert not exists(pid)


def test_the_process_ends_even_if_close_raises(caplog: pytest.LogCaptureFixture):
    session = Session(isolate(Reluctant()))
    session.reset(seed=3)
    pid = pid_of(session)
    session.close()
    assert not exists(pid)
    assert "raised when it was closed" in caplog.text


def test_a_session_can_be_closed_during_a_hanging_step(env: IsolatedEnvironment):
    session, errors = Session(env), []
    session.reset(seed=3)
    pid = pid_of(session)

    def step() -> None:
        try:
            session.step(fragile.HANG)
        except ProcessError as error:
            errors.append(str(error))

    thread = threading.Thread(target=step)
    thread.start()
    time.sleep(0.2)
    session.close()
    thread.join(10)
    assert not thread.is_alive()
    assert not exists(pid)
    assert "took too long" in errors[0]


@pytest.mark.slow
def test_no_worker_outlives_its_parent():
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True, env=environ) as alone:
        assert alone.stdout is not None
        idle, hanging = map(int, alone.stdout.readline().split())
        assert exists(idle)
        assert exists(hanging)
        time.sleep(0.2)
        alone.kill()
    wait_until(lambda: not exists(idle) and not exists(hanging))


def test_a_dead_fork_server_is_replaced(env: IsolatedEnvironment):
    with Session(env) as session:
        session.reset(seed=3)
        server = int(Path(f"/proc/{pid_of(session)}/stat").read_text().split()[3])
        os.kill(server, signal.SIGKILL)
        session.step(STAY)
        wait_until(lambda: "Z" in Path(f"/proc/{server}/stat").read_text() if exists(server) else True)
        session.reset(seed=4)
        assert session.step(STAY).obs.tolist()[:2] == [4, 1]


def test_a_module_that_starts_threads_is_imported_in_each_worker():
    with Session(isolate(Threaded())) as session, Session(isolate(Fragile())) as other:
        assert session.reset(seed=3).info == {"beating": True}
        assert other.reset(seed=3).obs.tolist()[0] == 3


@pytest.mark.parametrize("thing", [CartPole(), 3, None])
def test_only_host_environments_can_be_isolated(thing: Any):
    with pytest.raises(ValidationError, match="host environment"):
        isolate(thing)


def test_an_environment_that_cannot_be_pickled_is_rejected():
    with pytest.raises(ValidationError, match=r"Holding cannot run in its own process .*lock"):
        isolate(Holding())


@pytest.mark.slow
def test_a_class_defined_in_main_is_rejected():
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", IN_MAIN], capture_output=True, text=True, env=environ, check=False)
    assert "ValidationError: Mine cannot run in its own process" in done.stderr
    assert "importable module" in done.stderr
