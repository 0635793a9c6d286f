"""Twenty concurrent callers, through every transition: each sees only its own episode."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.core.lines import HostLine, Line
from tests.serve.running import Running, Servers, talk, until

from tropism import Session
from tropism.core.environment import Environment
from tropism.core.episode import Timestep
from tropism.errors import StateError, ValidationError
from tropism.serve.http.auth import ANONYMOUS
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import JsonForm
from tropism.serve.storage.working_memory import SessionLimits
from tropism.wire.codec import encode

CALLERS = 20
ENVIRONMENTS: dict[str, Environment] = {"Line-v0": Line(), "HostLine-v0": HostLine()}
FORMS = {id: JsonForm(Session(env)) for id, env in ENVIRONMENTS.items()}
SERVED = {id: ServedEnvironment(id, env, env.default_params(), "A line.") for id, env in ENVIRONMENTS.items()}
CODES = {StateError: "STATE_ERROR", ValidationError: "VALIDATION_ERROR"}
PHASES = (Phase.explicit, Phase.generate)  # shrinking takes minutes and explains no more
INDICES = st.integers(0, CALLERS - 1)


def attempt(function: Callable[[], Timestep]) -> tuple[Timestep | None, str]:
    try:
        return function(), "ok"
    except (StateError, ValidationError) as error:
        return None, CODES[type(error)]


class Caller:
    """A caller over HTTP or a socket, with a local session that yields the expected replies."""

    def __init__(self, servers: Servers, number: int):
        self.number = number
        self.id = list(ENVIRONMENTS)[number % 2]
        self.env = ENVIRONMENTS[self.id]
        self.servers = servers
        self.over_http = number % 4 < 2
        self.http = self.server.http(self.id)
        self.request_count = 0
        self.start_over()

    @property
    def server(self) -> Running:
        return self.servers.now

    def start_over(self) -> None:
        self.last: tuple[str, Any, str, Any] | None = None
        self.local = Session(self.env)
        self.session_id: str | None = None
        self.snapshots: dict[str, tuple[bytes, str | None]] = {}
        self.episode_id: str | None = None
        self.connect()

    def connect(self) -> None:
        if not self.over_http:
            query = "" if self.session_id is None else f"?session_id={self.session_id}"
            self.held = ExitStack()
            self.socket = self.held.enter_context(self.server.ws(self.id, query))

    def drop(self) -> None:
        """Drop the connection without closing it, and reconnect."""
        if self.over_http:
            self.http.close()
            self.http = self.server.http(self.id)
        else:
            self.socket.socket.shutdown(SHUT_RDWR)
            self.held.close()
            self.connect()

    def disconnect(self) -> None:
        if self.over_http:
            self.http.cookies.clear()
            if self.session_id is not None:
                self.request("close")
        else:
            self.socket.send('{"type": "close"}')
            self.held.close()

    def request(self, kind: str, data: Any = None) -> tuple[str, Any]:
        """The code of an error or 'ok', and the reply."""
        if kind in ("state", "history", "close"):
            return self._send(kind, data)
        self.request_count += 1
        request_id = f"{self.number}-{self.request_count}"
        code, received = self._send(kind, data, request_id)
        self.last = (kind, data, request_id, received) if code == "ok" else None
        return code, received

    def repeat_request(self) -> None:
        """Repeat the last request: the reply is the same, and nothing is performed twice."""
        if self.last is not None:
            *request, received = self.last
            assert self._send(*request) == ("ok", received)

    def _send(self, kind: str, data: Any, request_id: str | None = None) -> tuple[str, Any]:
        id_field = {} if request_id is None else {"request_id": request_id}
        if not self.over_http:
            reply = talk(self.socket, kind, data, **id_field)
            return (reply["data"]["code"] if reply["type"] == "error" else "ok"), reply["data"]
        self.http.cookies.clear()
        headers = {} if self.session_id is None else {"X-Session-Id": self.session_id}
        if kind in ("state", "history"):
            reply = self.http.get(f"/{kind}", headers=headers)
        else:
            body = {"action": data} if kind == "step" else data or {}
            reply = self.http.post(f"/{kind}", json=body | id_field, headers=headers)
        received = reply.json()
        return ("ok" if reply.status_code == 200 else received["code"]), received

    def expected_reply(self, ts: Timestep) -> Any:
        return json.loads(encode(FORMS[self.id].reply(self.local, ts)))

    def request_and_compare(self, kind: str, data: Any, locally: Any) -> Any:
        """Send a request, do the same locally, and compare; returns the reply, or None if both fail."""
        code, received = self.request(kind, data)
        ts, expected_code = attempt(locally)
        assert code == expected_code, received
        if ts is None:
            return None
        expected = self.expected_reply(ts)
        assert {name: received[name] for name in expected} == expected
        return received

    @property
    def has_episode(self) -> bool:
        return self.session_id is not None

    def evict(self) -> None:
        """Disconnect, let the server evict the session, and reconnect."""
        assert self.session_id is not None
        sessions = self.server.app.sessions
        live = self.servers.run(sessions.find, self.session_id, None, ANONYMOUS)
        if not self.over_http:
            self.held.close()
            until(lambda: not live.sockets)
        self.servers.run(sessions.evict, live)
        self.connect()

    def check_state(self) -> None:
        code, received = self.request("state")
        if self.has_episode:
            assert received == {"episode_id": self.episode_id, "step_count": self.local.step_count}
        elif self.over_http:
            assert code == "STATE_ERROR"
        else:
            assert received == {"episode_id": None, "step_count": 0}


class Interleaved(RuleBasedStateMachine):
    servers: Servers

    def __init__(self) -> None:
        super().__init__()
        self.callers = [Caller(self.servers, number) for number in range(CALLERS)]
        self.episodes = 0
        self.crashed = False

    @initialize(seed=st.integers(0, 5))
    def begin(self, seed: int) -> None:
        for index in range(0, CALLERS, 3):
            self.reset(index, seed)
            self.snapshot(index)

    @rule(index=INDICES, seed=st.integers(0, 5))
    def reset(self, index: int, seed: int) -> None:
        caller = self.callers[index]
        self.episodes += 1
        name = f"{index}-{self.episodes}"
        received = caller.request_and_compare(
            "reset", {"seed": seed, "episode_id": name}, lambda: caller.local.reset(seed=seed)
        )
        caller.session_id, caller.episode_id = received["session_id"], name

    @rule(index=INDICES)
    def reset_to_next_episode(self, index: int) -> None:
        caller = self.callers[index]
        if caller.has_episode:
            self.episodes += 1
            caller.episode_id = f"{index}-{self.episodes}"
            caller.request_and_compare("reset", {"episode_id": caller.episode_id}, lambda: caller.local.reset())

    @rule(index=INDICES)
    def reset_badly(self, index: int) -> None:
        caller = self.callers[index]
        caller.request_and_compare("reset", {"seed": -1}, lambda: caller.local.reset(seed=-1))

    @rule(index=INDICES, actions=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def step(self, index: int, actions: list[int]) -> None:
        caller = self.callers[index]
        for action in actions:
            caller.request_and_compare("step", {"value": action}, lambda action=action: caller.local.step(action))

    @rule(index=INDICES)
    def step_badly(self, index: int) -> None:
        caller = self.callers[index]
        code, _ = caller.request("step", {"value": 7})
        assert code in ("VALIDATION_ERROR", "STATE_ERROR")
        caller.check_state()

    @rule(index=INDICES)
    def snapshot(self, index: int) -> None:
        caller = self.callers[index]
        code, received = caller.request("snapshot")
        if caller.has_episode:
            caller.snapshots[received["snapshot_id"]] = caller.local.snapshot(), caller.episode_id
        else:
            assert code == "STATE_ERROR"

    @rule(index=INDICES, owner=INDICES)
    def restore(self, index: int, owner: int) -> None:
        """A caller can restore its own snapshots, but not those of another."""
        caller, other = self.callers[index], self.callers[owner]
        if not caller.has_episode or not other.snapshots:
            return
        id, (data, episode_id) = next(iter(other.snapshots.items()))
        if index != owner:
            assert caller.request("restore", {"from": id})[0] == "VALIDATION_ERROR"
            return
        caller.local = Session.restore(data, caller.env)
        caller.request_and_compare("restore", {"from": id}, lambda: caller.local.timestep)
        caller.episode_id = episode_id
        caller.check_state()

    @rule(index=INDICES, hops=st.integers(1, CALLERS // 2 - 1))
    def fork(self, index: int, hops: int) -> None:
        """Another caller continues with a fork of this session."""
        caller, other = self.callers[index], self.callers[(index + 2 * hops) % CALLERS]
        code, received = caller.request("fork")
        if not caller.has_episode:
            assert code == "STATE_ERROR"
            return
        other.disconnect()
        other.start_over()
        other.session_id, other.episode_id = received["session_id"], received["episode_id"]
        other.local = caller.local.fork()
        assert other.episode_id not in {each.episode_id for each in self.callers if each is not other}
        other.drop()

    @rule(index=INDICES)
    def drop(self, index: int) -> None:
        self.callers[index].drop()

    @rule(index=INDICES)
    def evict(self, index: int) -> None:
        caller = self.callers[index]
        if caller.has_episode:
            caller.evict()
            caller.repeat_request()
            caller.check_state()

    @precondition(lambda self: not self.crashed)
    @rule()
    def crash(self) -> None:
        """The server loses its memory, and callers do not notice."""
        self.crashed = True
        received = [caller.request("history") for caller in self.callers]
        self.servers.crash()
        for caller, history in zip(self.callers, received, strict=True):
            caller.drop()
            caller.repeat_request()
            caller.check_state()
            assert caller.request("history") == history

    @rule(index=INDICES)
    def close(self, index: int) -> None:
        caller = self.callers[index]
        caller.disconnect()
        gone, caller.session_id = caller.session_id, None
        caller.start_over()
        if gone is not None:
            with caller.server.http(caller.id, headers={"X-Session-Id": gone}) as late:
                assert late.get("/state").status_code == 404

    @invariant()
    def sessions_are_distinct(self) -> None:
        ids = [caller.session_id for caller in self.callers if caller.has_episode]
        assert len(ids) == len(set(ids))

    def teardown(self) -> None:
        try:
            self.crash()
            for index, caller in enumerate(self.callers):
                self.restore(index, index)
                caller.check_state()
                if caller.has_episode:
                    assert len(caller.request("history")[1]["steps"]) == caller.local.step_count
        finally:
            for caller in self.callers:
                caller.disconnect()
                caller.http.close()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as started:
        limits = SessionLimits(snapshot_every=5)
        yield Servers(tmp_path, started, own=SERVED, log_size=50, session_limits=limits)


@pytest.mark.slow
def test_callers_never_see_each_others_state(servers: Servers):
    Interleaved.servers = servers
    limits = settings(
        max_examples=5,
        phases=PHASES,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(Interleaved, settings=limits)
    until(lambda: len(servers.now.app.sessions) == 0)
