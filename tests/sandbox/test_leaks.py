"""Nothing is left of an episode: no process, no mount, no file, no memory."""

import gc
import os
import resource
import time
from pathlib import Path

import pytest
from tests.sandbox.cells import cell

from tropism import Session, make
from tropism.sandbox.pool import Tier


def children() -> int:
    """Processes that descend from this one: bubblewrap's own, and the workers within."""
    waiting, count = [os.getpid()], 0
    while waiting:
        tasks = Path(f"/proc/{waiting.pop()}/task").glob("*/children")
        found = [int(pid) for task in tasks for pid in task.read_text().split()]
        waiting += found
        count += len(found)
    return count


def held() -> dict[str, int]:
    gc.collect()
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "threads": len(os.listdir("/proc/self/task")),
    }


def live(episodes: int, tier: Tier) -> None:
    """Episodes that are closed, replaced, abandoned, crashed and stopped."""
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


def check(episodes: int, tier: Tier) -> None:
    cell(tier)  # skips where this tier cannot be had
    live(10, tier)
    before, memory = settled(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    live(episodes, tier)
    after = settled()
    assert after == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 30_000  # KiB


def settled() -> dict[str, int]:
    """What is held, once workers that were killed are gone and those that wait are there again."""
    last: dict[str, int] = {}
    for _ in range(20):
        time.sleep(0.5)
        now = held() | {"children": children()}
        if now == last:
            return now
        last = now
    return last


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["A", "B"])
def test_a_few_episodes_leave_nothing(tier: Tier):
    check(20, tier)


@pytest.mark.full
@pytest.mark.parametrize(("tier", "episodes"), [("A", 1_000), ("B", 200)])  # the pool and its workers are the same ones
def test_many_episodes_leave_nothing(tier: Tier, episodes: int):
    check(episodes, tier)
