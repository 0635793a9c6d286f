"""Episodes that live in processes of their own: the same as here, and only they can die."""

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
from tropism.isolation import Apart, apart

DEATHS = {
    fragile.SEGFAULT: "SIGSEGV",
    fragile.EXIT: f"exited with code {CODE}",
    fragile.KILLED: "SIGKILL",
    fragile.QUIT: f"exited with code {CODE}",
}
ALONE = """
import sys
from tests.isolation.fragile import Fragile, HANG
from tropism import Session
from tropism.isolation import apart
session, other = Session(apart(Fragile())), Session(apart(Fragile()))
session.reset(seed=1)
other.reset(seed=1)
print(session._engine.state().pid, other._engine.state().pid, flush=True)
other.step(HANG)
"""
IN_MAIN = """
from tests.isolation.fragile import Fragile
from tropism.isolation import apart
class Mine(Fragile): ...
apart(Mine())
"""


@pytest.fixture(scope="module")
def env() -> Apart:
    return apart(Fragile())


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pid_of(session: Session) -> int:
    return session._engine.state().pid  # pyright: ignore[reportPrivateUsage]


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def told(session: Session, actions: list[Any], **reset: Any) -> list[Any]:
    """All that a session says of an episode."""
    steps = [session.reset(**reset), *(session.step(action) for action in actions)]
    seen = (
        session.describe(),
        session.agent_position_in_image(),
        np.asarray(session.render()).tolist(),
        session.lifecycle,
    )
    return [[step.obs.tolist(), *step[1:]] for step in steps] + list(seen)


def test_an_episode_is_the_same_as_here(env: Apart):
    actions = [STAY, STAY, STAY, fragile.END]
    with Session(env) as there, Session(Fragile()) as here:
        for reset in ({"seed": 3}, {}, {"seed": 2**70, "options": {"params": {"gain": 2.5}}}):
            assert told(there, actions, **reset) == told(here, actions, **reset)
            assert there.seed == here.seed
        assert pid_of(there) != os.getpid()
        assert there.action_space == here.action_space
        assert there.observation_space == here.observation_space
        assert there.parse("stay") == here.parse("stay")


@pytest.mark.parametrize("factory", [Guessing, Stranger])
def test_class_based_environments_live_apart_too(factory: Any):
    action = {"number": 4} if factory is Guessing else {"to": 1}
    with Session(apart(factory)) as there, Session(factory) as here:
        for session in (there, here):
            session.reset(seed=5, episode_id="one")
        assert there.step(action) == here.step(action)
        assert there.describe() == here.describe()
        assert repr(there) == repr(here)


def test_gymnasium_environments_live_apart_too():
    inside = from_gymnasium("CartPole-v1")
    with Session(apart(inside)) as there, Session(inside) as here:
        assert there.reset(seed=1).obs.tolist() == here.reset(seed=1).obs.tolist()
        assert there.step(1).obs.tolist() == here.step(1).obs.tolist()


def test_it_obeys_the_law_of_environments():
    report = check_environment(apart(Echo()), num_steps=8)
    assert report.ok, str(report)


def test_forks_snapshots_and_pickles_go_on_in_processes_of_their_own(env: Apart):
    with Session(env) as session:
        session.reset(seed=3)
        session.step(STAY)
        forked, restored = session.fork(), Session.restore(session.snapshot(), env)
        thawed, reseeded, here = pickle.loads(pickle.dumps(session)), session.fork(9), Session(Fragile())
        here.reset(seed=3)
        here.step(STAY)
        turned = here.fork(9)
        assert len({pid_of(each) for each in (session, forked, restored, thawed, reseeded)}) == 5
        expected, other = here.step(STAY).obs.tolist(), turned.step(STAY).obs.tolist()
        for twin in (forked, restored, thawed):
            assert twin.step(STAY).obs.tolist() == expected
            twin.close()
        assert session.step(STAY).obs.tolist() == expected
        assert reseeded.step(STAY).obs.tolist() == other != expected
        reseeded.close()


def test_a_snapshot_is_the_same_wherever_the_episode_lived(env: Apart):
    with Session(env) as there, Session(Fragile()) as here:
        for session in (there, here):
            session.reset(seed=3, episode_id="one")
            session.step(STAY)
        assert there.snapshot() == here.snapshot()
        with Session.restore(there.snapshot(), Fragile()) as back:
            assert back.step(STAY).obs.tolist() == here.step(STAY).obs.tolist()


def test_it_has_the_identity_of_the_environment_inside():
    inside, _ = make("Echo-v0")
    assert identify(apart(inside)) == identify(inside) == {"id": "Echo-v0", "arguments": {}}
    assert apart(inside) == apart(inside)
    assert apart(apart(inside)) == apart(inside)


@pytest.mark.parametrize(("death", "words"), DEATHS.items(), ids=DEATHS.values())
def test_a_death_is_told_and_harms_nobody_else(env: Apart, death: int, words: str):
    with Session(env) as session, Session(env) as other, Session(Fragile()) as here:
        for each in (session, other, here):
            each.reset(seed=3)
            each.step(STAY)
        with pytest.raises(ProcessError, match=words) as raised:
            session.step(death)
        assert "Fragile" in str(raised.value)
        if death == fragile.SEGFAULT:
            assert "fragile.py" in str(raised.value.__cause__)
        expected = here.step(STAY)
        assert other.step(STAY).obs.tolist() == expected.obs.tolist()
        assert session.step_count == 1
        assert session.step(STAY).obs.tolist() == expected.obs.tolist(), "the episode comes back"
        with pytest.raises(ProcessError):
            session.step(death)
        assert session.describe() == here.describe()
        with pytest.raises(ProcessError):
            session.step(death)
        assert session.reset(seed=4).obs.tolist() == here.reset(seed=4).obs.tolist()
        assert session.step(STAY).obs.tolist() == here.step(STAY).obs.tolist()


def test_what_the_environment_itself_has_started_does_not_hide_its_death(env: Apart):
    with Session(env) as session:
        session.reset(seed=3)
        start = time.monotonic()
        with pytest.raises(ProcessError, match=f"exited with code {CODE}"):
            session.step(fragile.ORPHAN)
        assert time.monotonic() - start < ORPHANED / 2


def test_a_step_that_is_interrupted_has_not_happened(env: Apart):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Session(env) as session, Session(Fragile()) as here:
            for each in (session, here):
                each.reset(seed=3)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                session.step(fragile.HANG)
            assert session.step(STAY).obs.tolist() == here.step(STAY).obs.tolist()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_processes_do_not_draw_the_same_where_nothing_seeds_them():
    with Session(apart(Drawing())) as one, Session(one.env) as other:
        assert one.reset(seed=3).obs.tolist() != other.reset(seed=3).obs.tolist()


def test_one_that_is_killed_between_steps_comes_back(env: Apart):
    with Session(env) as session, Session(Fragile()) as here:
        for each in (session, here):
            each.reset(seed=3)
        os.kill(pid_of(session), signal.SIGKILL)
        with pytest.raises(ProcessError, match="SIGKILL"):
            session.step(STAY)
        assert session.step(STAY).obs.tolist() == here.step(STAY).obs.tolist()


def test_what_cannot_be_replayed_is_lost_until_a_reset():
    with Session(apart(Unrepeatable())) as session:
        session.reset(seed=3)
        with pytest.raises(ProcessError):
            session.step(fragile.SEGFAULT)
        with pytest.raises(StateError, match="reset"):
            session.step(STAY)
        session.reset(seed=3)
        assert session.step(STAY).obs.tolist()[1] == 1


def test_an_episode_that_does_not_repeat_does_not_come_back_as_another():
    with Session(apart(Forgetful())) as session:
        session.reset(seed=3)
        with pytest.raises(ProcessError):
            session.step(fragile.SEGFAULT)
        with pytest.raises(DivergedError):
            session.step(STAY)


def test_errors_are_those_that_were_raised_there(env: Apart):
    with Session(env) as session:
        session.reset(seed=3)
        with pytest.raises(LookupError, match="swordfish") as raised:
            session.step(fragile.RAISE)
        assert "fragile.py" in str(raised.value.__cause__)
        pid = pid_of(session)
        with pytest.raises(ValidationError, match="action is 6; expected another"):
            session.step(fragile.REFUSE)
        with pytest.raises(ProcessError, match="OddError") as odd:
            session.step(fragile.ODD)
        assert SECRET not in str(odd.value)
        assert SECRET in str(odd.value.__cause__)
        with pytest.raises(ProcessError, match="cannot be pickled"):
            session.step(fragile.UNSENDABLE)
        assert session.step(STAY).obs.tolist()[1] == 1, "none of these was a step"
        assert pid_of(session) == pid


def test_closing_ends_the_process(tmp_path: Path):
    env = apart(Fragile(str(tmp_path)))
    session = Session(env)
    session.reset(seed=3)
    first = pid_of(session)
    session.reset()
    second = pid_of(session)
    assert not exists(first)
    session.close()
    assert not exists(second)
    assert {path.name for path in tmp_path.iterdir()} == {str(first), str(second)}


def test_a_session_nobody_has_any_more_leaves_no_process(env: Apart):
    session: Session | None = Session(env)
    session.reset(seed=3)
    pid = pid_of(session)
    del session
    gc.collect()
    with Session(env) as another:
        another.reset(seed=3)
    assert not exists(pid)


def test_an_environment_that_cannot_be_closed_is_ended(caplog: pytest.LogCaptureFixture):
    session = Session(apart(Reluctant()))
    session.reset(seed=3)
    pid = pid_of(session)
    session.close()
    assert not exists(pid)
    assert "raised when it was closed" in caplog.text


def test_a_step_that_hangs_can_be_closed(env: Apart):
    session, heard = Session(env), []
    session.reset(seed=3)
    pid = pid_of(session)

    def step() -> None:
        try:
            session.step(fragile.HANG)
        except ProcessError as error:
            heard.append(str(error))

    thread = threading.Thread(target=step)
    thread.start()
    time.sleep(0.2)
    session.close()
    thread.join(10)
    assert not thread.is_alive()
    assert not exists(pid)
    assert "took too long" in heard[0]


@pytest.mark.slow
def test_no_process_outlives_the_one_that_asked_for_it():
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True, env=environ) as alone:
        assert alone.stdout is not None
        idle, hanging = map(int, alone.stdout.readline().split())
        assert exists(idle)
        assert exists(hanging)
        time.sleep(0.2)
        alone.kill()
    until(lambda: not exists(idle) and not exists(hanging))


def test_the_nursery_is_started_again_when_it_ends(env: Apart):
    with Session(env) as session:
        session.reset(seed=3)
        nursery = int(Path(f"/proc/{pid_of(session)}/stat").read_text().split()[3])
        os.kill(nursery, signal.SIGKILL)
        session.step(STAY)
        until(lambda: "Z" in Path(f"/proc/{nursery}/stat").read_text() if exists(nursery) else True)
        session.reset(seed=4)
        assert session.step(STAY).obs.tolist()[:2] == [4, 1]


def test_what_starts_threads_when_it_is_imported_is_imported_in_each_process():
    with Session(apart(Threaded())) as session, Session(apart(Fragile())) as other:
        assert session.reset(seed=3).info == {"beating": True}
        assert other.reset(seed=3).obs.tolist()[0] == 3


@pytest.mark.parametrize("thing", [CartPole(), 3, None])
def test_only_host_environments_live_apart(thing: Any):
    with pytest.raises(ValidationError, match="host environment"):
        apart(thing)


def test_what_cannot_be_sent_is_refused_at_once():
    with pytest.raises(ValidationError, match=r"Holding cannot live in a process .*lock"):
        apart(Holding())


@pytest.mark.slow
def test_a_class_of_the_program_itself_is_refused_at_once():
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", IN_MAIN], capture_output=True, text=True, env=environ, check=False)
    assert "ValidationError: Mine cannot live in a process of its own" in done.stderr
    assert "importable module" in done.stderr
