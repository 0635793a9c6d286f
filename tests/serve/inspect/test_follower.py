"""Timelines: failed replays, closed sessions, and concurrency."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.serve.inspect.timelines import picture_of, start_session
from tests.serve.lab import LONG_SLEEP, LONG_SLEEPING, SLEEP, SLEEPING, STAY, Lab
from tests.serve.replies import assert_refused
from tests.serve.requests import act
from tests.serve.running import Running, labs, running, until

from tropism.core.environment import Environment
from tropism.serve.session import replay_pool
from tropism.serve.session.environment import ServedEnvironment


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("GridWorld-v0", own=labs()) as started:
        yield started


@pytest.mark.slow
def test_a_long_replay_returns_partial_rows_without_blocking(server: Running):
    with server.http("Lab-v0") as slow, server.http("GridWorld-v0") as quick:
        view = start_session(slow, [STAY, LONG_SLEEP, STAY, LONG_SLEEP])
        quick.post("/reset", json={})
        with ThreadPoolExecutor(1) as thread:
            looking = thread.submit(slow.get, f"/sessions/{view}/history")
            start = time.monotonic()
            for _ in range(20):
                assert quick.post("/step", json=act(0)).status_code == 200
            assert slow.post("/step", json=act(STAY), timeout=30).status_code == 200
            assert time.monotonic() - start < LONG_SLEEPING
            assert len(looking.result().json()["rows"]) < 5
        steps: list[Any] = []
        while len(steps) < 6:
            steps = slow.get(f"/sessions/{view}/history").json()["rows"]
        assert steps[-1]["numbers"] == {"observation[0]": 1.0, "observation[1]": 5.0}


class Moody(Lab):
    """Raises at the second step of its first replay."""

    moods = iter([False, True, False])

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        if state.steps == 1 and next(self.moods):
            raise OSError("not now")
        return super().step(key, state, action, params)


def serve_only(id: str, env: Environment) -> dict[str, ServedEnvironment]:
    return {id: ServedEnvironment(id, env, env.default_params(), "A test's own.")}


def test_a_replay_with_a_transient_error_is_retried():
    with running(own=serve_only("Moody-v0", Moody())) as server, server.http() as caller:
        view = start_session(caller, [STAY, STAY])
        assert_refused(caller.get(f"/sessions/{view}/history"), "EXECUTION_ERROR")
        assert len(caller.get(f"/sessions/{view}/history").json()["rows"]) == 3


class Refused(Lab):
    """Its rewards differ in a replay."""

    rewards = count(1.0)

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        obs, state, _, done, info = super().step(key, state, action, params)
        return obs, state, next(self.rewards), done, info


def test_a_diverged_replay_raises_the_same_error_each_time():
    with running(own=serve_only("Refused-v0", Refused())) as server, server.http() as caller:
        view = start_session(caller, [STAY, STAY])
        body = [caller.get(f"/sessions/{view}/history") for _ in range(3)]
        for reply in body:
            assert_refused(reply, "DIVERGED")
        assert len({reply.text for reply in body}) == 1
        assert next(Refused.rewards) == 4.0  # two steps, and one in the replay


class Counted(Lab):
    """Counts its open episodes, and is slow to replay."""

    opened: ClassVar[list[int]] = []

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        self.opened.append(key)
        return super().reset(key, params)

    def close(self, state: Any) -> None:
        self.opened.pop()


def test_replayed_sessions_are_closed(tmp_path: Path):
    env = Counted()
    with running(own=serve_only("Counted-v0", env), record=tmp_path) as server, server.http() as caller:
        view = start_session(caller, [STAY, STAY])
        caller.get(f"/sessions/{view}/history")
        assert len(env.opened) == 2
        caller.post("/reset", json={"seed": 2})
        caller.get(f"/sessions/{view}/history")
        assert len(env.opened) == 2
        caller.post("/close")
        until(lambda: len(env.opened) == 0)
        with ThreadPoolExecutor(8) as threads:
            looks = [threads.submit(caller.get, "/recordings/0/history") for _ in range(8)]
            assert {len(look.result().json()["rows"]) for look in looks} == {3}
        assert len(env.opened) == 1
        view = start_session(caller, [STAY] + [SLEEP] * 3)
        with ThreadPoolExecutor(1) as thread:
            looking = thread.submit(caller.get, f"/sessions/{view}/history")
            time.sleep(SLEEPING)
            caller.post("/close")
            looking.result()
        until(lambda: len(env.opened) == 1)
    assert len(env.opened) == 0


class Slow(Lab):
    """Its steps are slow, in replays too."""

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        time.sleep(SLEEPING)
        return super().step(key, state, action, params)


def test_replays_queue_without_delaying_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay_pool, "MAX_WAITING", 6)
    slow, threads = running("GridWorld-v0", own=serve_only("Slow-v0", Slow())), ThreadPoolExecutor(8)
    with slow as server, server.http("Slow-v0") as caller, server.http("GridWorld-v0") as other, threads:
        view = start_session(caller, [STAY] * 2)
        forks = [threads.submit(caller.post, f"/sessions/{view}/fork", json={"step": 2}) for _ in range(8)]
        assert other.post("/reset", json={}).status_code == 200
        assert other.post("/step", json=act(1)).status_code == 200
        assert sorted(fork.result().status_code for fork in forks) == [200] * 6 + [503] * 2


def test_replays_of_one_token_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replay_pool, "MAX_WAITING", 8)
    monkeypatch.setattr(replay_pool, "WAITING_SHARE", 2)
    slow = running(own=serve_only("Slow-v0", Slow()), tokens=("first", "second"))
    with slow as server, ThreadPoolExecutor(9) as threads, ExitStack() as callers:
        one, other = (
            callers.enter_context(server.http("Slow-v0", headers={"authorization": f"Bearer {token}"}))
            for token in ("first", "second")
        )
        views = [start_session(caller, [STAY] * 2) for caller in (one, other)]
        many = [threads.submit(one.post, f"/sessions/{views[0]}/fork", json={"step": 2}) for _ in range(6)]
        until(lambda: any(fork.done() for fork in many))  # the two that are refused
        assert other.post(f"/sessions/{views[1]}/fork", json={"step": 2}).status_code == 200
        assert not all(fork.done() for fork in many)  # it did not wait for all of them
        assert sorted(fork.result().status_code for fork in many) == [200] * 4 + [429] * 2


class Painter(Lab):
    """Draws slowly."""

    def render(self, state: Any, params: Any) -> Any:
        time.sleep(SLEEPING)
        return np.full((2, 2, 3), state.steps, np.uint8)


def test_history_is_served_while_a_picture_is_drawn():
    with (
        running(own=serve_only("Painter-v0", Painter())) as server,
        server.http() as caller,
        ThreadPoolExecutor(1) as thread,
    ):
        view = start_session(caller, [STAY])
        assert len(caller.get(f"/sessions/{view}/history").json()["rows"]) == 2
        drawing = thread.submit(caller.get, f"/sessions/{view}/picture?step=1")
        time.sleep(SLEEPING / 4)
        caller.post("/step", json=act(STAY))
        assert len(caller.get(f"/sessions/{view}/history").json()["rows"]) == 3
        assert (picture_of(drawing.result()) == 1).all()
