"""Twenty callers at once, through every transition there is: each sees its own episode and no other's."""

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
from tropism.serve.session import replay
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.json_form import JsonForm
from tropism.serve.storage import sqlite
from tropism.wire.codec import encode

CALLERS = 20
ENVIRONMENTS: dict[str, Environment] = {"Line-v0": Line(), "HostLine-v0": HostLine()}
FORMS = {id: JsonForm(Session(env)) for id, env in ENVIRONMENTS.items()}
SERVED = {id: ServedEnvironment(id, env, env.default_params(), "A line.") for id, env in ENVIRONMENTS.items()}
CODES = {StateError: "STATE_ERROR", ValidationError: "VALIDATION_ERROR"}
PHASES = (Phase.explicit, Phase.generate)  # a smaller example says no more, and takes minutes to find
WHO = st.integers(0, CALLERS - 1)


def attempted(function: Callable[[], Timestep]) -> tuple[Timestep | None, str]:
    try:
        return function(), "ok"
    except (StateError, ValidationError) as error:
        return None, CODES[type(error)]


class Caller:
    """One of the callers: over HTTP or a socket, with a local session that says what it must see."""

    def __init__(self, servers: Servers, number: int):
        self.number = number
        self.id = list(ENVIRONMENTS)[number % 2]
        self.env = ENVIRONMENTS[self.id]
        self.servers = servers
        self.over_http = number % 4 < 2
        self.http = self.server.http(self.id)
        self.asked = 0
        self.begin_anew()

    @property
    def server(self) -> Running:
        return self.servers.now

    def begin_anew(self) -> None:
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
        """Lose the connection, without a goodbye, and come back."""
        if self.over_http:
            self.http.close()
            self.http = self.server.http(self.id)
        else:
            self.socket.socket.shutdown(SHUT_RDWR)
            self.held.close()
            self.connect()

    def leave(self) -> None:
        if self.over_http:
            self.http.cookies.clear()
            if self.session_id is not None:
                self.ask("close")
        else:
            self.socket.send('{"type": "close"}')
            self.held.close()

    def ask(self, kind: str, data: Any = None) -> tuple[str, Any]:
        """The code of a refusal or 'ok', and what was told."""
        if kind in ("state", "history", "close"):
            return self._ask(kind, data)
        self.asked += 1
        request_id = f"{self.number}-{self.asked}"
        code, told = self._ask(kind, data, request_id)
        self.last = (kind, data, request_id, told) if code == "ok" else None
        return code, told

    def ask_again(self) -> None:
        """Who did not hear the last reply hears it now, and nothing is done twice."""
        if self.last is not None:
            *request, told = self.last
            assert self._ask(*request) == ("ok", told)

    def _ask(self, kind: str, data: Any, request_id: str | None = None) -> tuple[str, Any]:
        named = {} if request_id is None else {"request_id": request_id}
        if not self.over_http:
            reply = talk(self.socket, kind, data, **named)
            return (reply["data"]["code"] if reply["type"] == "error" else "ok"), reply["data"]
        self.http.cookies.clear()
        headers = {} if self.session_id is None else {"X-Session-Id": self.session_id}
        if kind in ("state", "history"):
            reply = self.http.get(f"/{kind}", headers=headers)
        else:
            body = {"action": data} if kind == "step" else data or {}
            reply = self.http.post(f"/{kind}", json=body | named, headers=headers)
        told = reply.json()
        return ("ok" if reply.status_code == 200 else told["code"]), told

    def told(self, ts: Timestep) -> Any:
        return json.loads(encode(FORMS[self.id].reply(self.local, ts)))

    def both(self, kind: str, data: Any, locally: Any) -> Any:
        """Ask the server, do the same here, and compare; what was told, or None where both refuse."""
        code, told = self.ask(kind, data)
        ts, expected_code = attempted(locally)
        assert code == expected_code, told
        if ts is None:
            return None
        expected = self.told(ts)
        assert {name: told[name] for name in expected} == expected
        return told

    @property
    def begun(self) -> bool:
        return self.session_id is not None

    def evict(self) -> None:
        """Be away for so long that the server takes the session for idle."""
        assert self.session_id is not None
        sessions = self.server.app.sessions
        served = self.servers.run(sessions.find_in_any_environment, self.session_id, ANONYMOUS)
        if not self.over_http:
            self.held.close()
            until(lambda: not served.sockets)
        self.servers.run(sessions.evict, served)
        self.connect()

    def check_state(self) -> None:
        code, told = self.ask("state")
        if self.begun:
            assert told == {"episode_id": self.episode_id, "step_count": self.local.step_count}
        elif self.over_http:
            assert code == "STATE_ERROR"
        else:
            assert told == {"episode_id": None, "step_count": 0}


class Interleaved(RuleBasedStateMachine):
    servers: Servers

    def __init__(self) -> None:
        super().__init__()
        self.callers = [Caller(self.servers, number) for number in range(CALLERS)]
        self.episodes = 0
        self.crashed = False

    @initialize(seed=st.integers(0, 5))
    def begin(self, seed: int) -> None:
        for who in range(0, CALLERS, 3):
            self.reset(who, seed)
            self.snapshot(who)

    @rule(who=WHO, seed=st.integers(0, 5))
    def reset(self, who: int, seed: int) -> None:
        caller = self.callers[who]
        self.episodes += 1
        name = f"{who}-{self.episodes}"
        told = caller.both("reset", {"seed": seed, "episode_id": name}, lambda: caller.local.reset(seed=seed))
        caller.session_id, caller.episode_id = told["session_id"], name

    @rule(who=WHO)
    def reset_to_the_next(self, who: int) -> None:
        caller = self.callers[who]
        if caller.begun:
            self.episodes += 1
            caller.episode_id = f"{who}-{self.episodes}"
            caller.both("reset", {"episode_id": caller.episode_id}, lambda: caller.local.reset())

    @rule(who=WHO)
    def reset_badly(self, who: int) -> None:
        caller = self.callers[who]
        caller.both("reset", {"seed": -1}, lambda: caller.local.reset(seed=-1))

    @rule(who=WHO, actions=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def step(self, who: int, actions: list[int]) -> None:
        caller = self.callers[who]
        for action in actions:
            caller.both("step", {"value": action}, lambda action=action: caller.local.step(action))

    @rule(who=WHO)
    def step_badly(self, who: int) -> None:
        caller = self.callers[who]
        code, _ = caller.ask("step", {"value": 7})
        assert code in ("VALIDATION_ERROR", "STATE_ERROR")
        caller.check_state()

    @rule(who=WHO)
    def snapshot(self, who: int) -> None:
        caller = self.callers[who]
        code, told = caller.ask("snapshot")
        if caller.begun:
            caller.snapshots[told["snapshot_id"]] = caller.local.snapshot(), caller.episode_id
        else:
            assert code == "STATE_ERROR"

    @rule(who=WHO, lookup=WHO)
    def restore(self, who: int, lookup: int) -> None:
        """A snapshot of one's own brings one back; that of another is unknown."""
        caller, other = self.callers[who], self.callers[lookup]
        if not caller.begun or not other.snapshots:
            return
        id, (data, episode_id) = next(iter(other.snapshots.items()))
        if who != lookup:
            assert caller.ask("restore", {"from": id})[0] == "VALIDATION_ERROR"
            return
        caller.local = Session.restore(data, caller.env)
        caller.both("restore", {"from": id}, lambda: caller.local.timestep)
        caller.episode_id = episode_id
        caller.check_state()

    @rule(who=WHO, hops=st.integers(1, CALLERS // 2 - 1))
    def fork(self, who: int, hops: int) -> None:
        """Another caller goes on from here with a session of its own."""
        caller, other = self.callers[who], self.callers[(who + 2 * hops) % CALLERS]
        code, told = caller.ask("fork")
        if not caller.begun:
            assert code == "STATE_ERROR"
            return
        other.leave()
        other.begin_anew()
        other.session_id, other.episode_id = told["session_id"], told["episode_id"]
        other.local = caller.local.fork()
        assert other.episode_id not in {each.episode_id for each in self.callers if each is not other}
        other.drop()

    @rule(who=WHO)
    def drop(self, who: int) -> None:
        self.callers[who].drop()

    @rule(who=WHO)
    def evict(self, who: int) -> None:
        caller = self.callers[who]
        if caller.begun:
            caller.evict()
            caller.ask_again()
            caller.check_state()

    @precondition(lambda self: not self.crashed)
    @rule()
    def crash(self) -> None:
        """Whatever the server had in memory is gone, and nobody notices."""
        self.crashed = True
        told = [caller.ask("history") for caller in self.callers]
        self.servers.crash()
        for caller, history in zip(self.callers, told, strict=True):
            caller.drop()
            caller.ask_again()
            caller.check_state()
            assert caller.ask("history") == history

    @rule(who=WHO)
    def close(self, who: int) -> None:
        caller = self.callers[who]
        caller.leave()
        gone, caller.session_id = caller.session_id, None
        caller.begin_anew()
        if gone is not None:
            with caller.server.http(caller.id, headers={"X-Session-Id": gone}) as late:
                assert late.get("/state").status_code == 404

    @invariant()
    def sessions_are_distinct(self) -> None:
        ids = [caller.session_id for caller in self.callers if caller.begun]
        assert len(ids) == len(set(ids))

    def teardown(self) -> None:
        try:
            self.crash()
            for who, caller in enumerate(self.callers):
                self.restore(who, who)
                caller.check_state()
                if caller.begun:
                    assert len(caller.ask("history")[1]["steps"]) == caller.local.step_count
        finally:
            for caller in self.callers:
                caller.leave()
                caller.http.close()


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr(replay, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(sqlite, "LONGEST_LOG", 50)
    with ExitStack() as started:
        yield Servers(tmp_path, started, own=SERVED)


@pytest.mark.slow
def test_nobody_ever_sees_the_state_of_another(servers: Servers):
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
