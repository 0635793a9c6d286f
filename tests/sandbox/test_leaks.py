"""An episode leaks no process, mount, file or memory."""

import gc
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sandbox.processes import adopt_orphans, count_children
from tests.sandbox.specs import every_tier, spec_or_skip

from tropism import Session, make
from tropism.sandbox.launcher import Launcher, start_unprivileged
from tropism.sandbox.mounts import mounts_for
from tropism.sandbox.pool import BOOTSTRAP, INTERPRETER_OPTIONS, Pool, Tier


def open_resources() -> dict[str, int]:
    gc.collect()
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "threads": len(os.listdir("/proc/self/task")),
    }


def run_episodes(episodes: int, tier: Tier) -> None:
    """Run episodes that are closed, replaced, abandoned, crashed and stopped."""
    codes = ("x = 1", "import os; os._exit(1)", "print('x' * 10**6)", "import time; time.sleep(60)", "raise ValueError")
    env, params = make("Coding-v0", tier=tier, wall=0.2)
    for number in range(episodes):
        session = Session(env, params)
        session.reset(seed=number)
        session.step({"code": codes[3 if number % 50 == 3 else number % 3]})
        session.step({"code": "y = 2"})
        if number % 2:
            session.reset()
            session.step({"code": "z = 3"})
        if number % 3:
            session.close()


def check_leaks(episodes: int, tier: Tier) -> None:
    spec_or_skip(tier)  # skips if this tier is unavailable
    run_episodes(10, tier)
    before, memory = stable_resources(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run_episodes(episodes, tier)
    after = stable_resources()
    assert after == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 30_000  # KiB


def stable_resources() -> dict[str, int]:
    """Wait until killed workers have ended and spare ones are started; returns the resources in use."""
    last: dict[str, int] = {}
    for _ in range(20):
        time.sleep(0.5)
        now = open_resources() | {"children": count_children()}
        if now == last:
            return now
        last = now
    return last


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_few_episodes_leak_nothing(tier: Tier):
    check_leaks(20, tier)


@pytest.mark.full
@pytest.mark.parametrize(("tier", "episodes"), [("A", 1_000), ("B", 200)])  # both tiers share the pool's code
def test_many_episodes_leak_nothing(tier: Tier, episodes: int):
    check_leaks(episodes, tier)


def test_a_worker_that_is_starting_ends_with_the_thread_that_started_it():
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    launcher = Launcher(mounts_for(()).readable)
    command = [mounts_for(()).interpreter, "-S", "-c", "import time; time.sleep(60)"]  # does not ask for the signal
    process = launcher.run(lambda: start_unprivileged(command, ends_with_thread=True))
    time.sleep(0.2)  # setpriv asks for it
    launcher.close()
    assert process.wait(10) == -signal.SIGKILL


@pytest.mark.slow
@every_tier
def test_a_worker_that_is_ended_while_it_starts_leaves_no_process(tier: Tier):
    """Bubblewrap killed alone, before it lets its child proceed, would leave a child that waits for ever."""
    pool = Pool(spec_or_skip(tier), spares=0)
    delays = random.Random(0)
    with adopt_orphans() as orphans:
        for _ in range(100):
            worker = pool._launcher.run(pool._start)  # pyright: ignore[reportPrivateUsage]
            time.sleep(delays.uniform(0, 0.02))
            worker.end()
        deadline = time.monotonic() + 10
        while (left := orphans()) and time.monotonic() < deadline:
            time.sleep(0.1)
    pool.close()
    assert left == []


@pytest.mark.parametrize(
    "disconnect", [socket.socket.close, lambda sock: sock.shutdown(socket.SHUT_WR)], ids=["before", "meanwhile"]
)
def test_a_worker_whose_server_ends_before_it_has_sent_the_program_exits(disconnect: Callable[[socket.socket], None]):
    server, worker = socket.socketpair()
    with server, worker:
        server.sendall((1000).to_bytes(4, "little") + bytes(500))
        disconnect(server)
        command = [mounts_for(()).interpreter, *INTERPRETER_OPTIONS, "-c", BOOTSTRAP]
        subprocess.run(command, stdin=worker.fileno(), stderr=subprocess.DEVNULL, timeout=30)
