"""Recordings inspected through the server: listed, replayed and forked; access and errors.

Episodes in progress are inspected too, so these servers record steps directly: their journal is in memory.
"""

from pathlib import Path

import pytest
from tests.serve.inspect.timelines import start_session
from tests.serve.lab import STAY, Lab
from tests.serve.recordings.games import game, verify
from tests.serve.replies import assert_refused
from tests.serve.requests import TOKENS, act, bearer
from tests.serve.running import labs, running

from tropism import Session, make
from tropism.record import Recorder
from tropism.serve.recordings.catalog import MAX_LISTED
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.memory import MemoryJournal


def test_recordings_equal_the_session_and_forks_are_recorded(tmp_path: Path):
    with running(own=game(), record=tmp_path, journal=MemoryJournal()) as server, server.http() as caller:
        view = start_session(caller, [3, 3, 2], seed=5)
        live = caller.get(f"/sessions/{view}/history").json()["rows"]
        recorded = caller.get("/recordings/0/history").json()
        assert (recorded["rows"], recorded["seed"], recorded["step_count"]) == (live, "5", 3)
        picture = "picture?step=2"
        assert caller.get(f"/recordings/0/{picture}").content == caller.get(f"/sessions/{view}/{picture}").content
        fork = caller.post("/recordings/0/fork", json={"step": 2, "seed": 9}).json()
        named = {"X-Session-Id": fork["session_id"]}
        assert caller.post("/step", json=act(6), headers=named).status_code == 200
        again = caller.post(f"/sessions/{fork['view']}/fork", json={"step": 1}).json()
        caller.post("/step", json=act(0), headers={"X-Session-Id": again["session_id"]})
        caller.post("/step", json=act(2))  # the parent continues
        rows = caller.get("/recordings").json()
        assert [(row["number"], row["steps"], row["parent"]) for row in rows["episodes"]] == [
            (2, 2, [1, 1]),
            (1, 3, [0, 2]),
            (0, 4, None),
        ]
        body = caller.get("/recordings/1/history").json()["rows"]
        assert body == caller.get(f"/sessions/{fork['view']}/history").json()["rows"]
        assert caller.get("/list_environments").json()[0]["recordings"] == rows["count"] == 3
    reader = verify(tmp_path / "ConnectFour-v0")
    assert [episode.actions.tolist() for episode in reader] == [[3, 3, 2, 2], [3, 3, 6], [3, 0]]


def test_earlier_recordings_are_listed_latest_first_up_to_a_limit(tmp_path: Path):
    with Recorder(Session(*make("GridWorld-v0")), tmp_path / "GridWorld-v0") as recorder:
        for seed in range(MAX_LISTED + 3):
            recorder.reset(seed=seed)
            recorder.step(seed % 4)
    with running("GridWorld-v0", "Echo-v0", record=tmp_path) as server, server.http() as caller:
        rows = caller.get("/recordings").json()["episodes"]
        assert [row["number"] for row in rows] == [*range(MAX_LISTED + 2, 2, -1)]
        older = caller.get("/recordings", params={"before": rows[-1]["number"]}).json()["episodes"]
        assert [(row["number"], row["seed"], row["lifecycle"]) for row in older] == [
            (number, str(number), "ready") for number in (2, 1, 0)
        ]
        fork = caller.post("/recordings/1/fork", json={"step": 1}).json()
        assert fork["step_count"] == 1
        assert server.app.environments["GridWorld-v0"].inline, "a fork steps as fast as any session"
        assert caller.get("/envs/Echo-v0/recordings").json()["episodes"] == []


def test_recordings_are_visible_to_every_token_only(tmp_path: Path):
    with running("GridWorld-v0", tokens=TOKENS, record=tmp_path, journal=MemoryJournal()) as server:
        mine, theirs = (server.http(headers=bearer(token)) for token in TOKENS)
        with mine, theirs, server.http() as nobody:
            start_session(mine, [1])
            for path in ("/recordings", "/recordings/0/history", "/recordings/0/picture?step=1"):
                assert theirs.get(path).status_code == 200
                assert_refused(nobody.get(path), "UNAUTHORIZED")
            assert_refused(nobody.post("/recordings/0/fork", json={"step": 0}), "UNAUTHORIZED")
            twin = theirs.post("/recordings/0/fork", json={"step": 1}).json()["session_id"]
            assert theirs.post("/step", json=act(1), headers={"X-Session-Id": twin}).status_code == 200
            assert_refused(mine.post("/step", json=act(1), headers={"X-Session-Id": twin}), "SESSION_ERROR")


def test_a_recording_that_cannot_be_replayed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with running("Echo-v0", own=labs(), record=tmp_path, journal=MemoryJournal()) as server, server.http() as caller:
        for place in ("1", "-1", "x", "9" * 30, "²"):
            assert_refused(caller.get(f"/recordings/{place}/history"), "NOT_FOUND")
        with server.http("Unwritable-v0") as unwritable:
            start_session(unwritable, [STAY], seed=1)
            assert len(unwritable.get("/recordings").json()["episodes"]) == 1
            assert_refused(unwritable.get("/recordings/0/history"), "STATE_ERROR")
        with server.http("Lab-v0") as lab:
            start_session(lab, [STAY, STAY])
            assert len(lab.get("/recordings/0/history").json()["rows"]) == 3
            for step in (3, -1, "one", None):
                assert_refused(lab.post("/recordings/0/fork", json={"step": step}), "VALIDATION_ERROR")
    env, observe = Lab(), Lab.observation
    monkeypatch.setattr(Lab, "observation", lambda self, state: observe(self, state) + (state.steps > 1))
    changed = {"Lab-v0": ServedEnvironment("Lab-v0", env, env.default_params(), "")}
    with running(own=changed, record=tmp_path) as server, server.http() as caller:
        assert_refused(caller.get("/recordings/0/history"), "DIVERGED")
        assert_refused(caller.post("/recordings/0/fork", json={"step": 2}), "DIVERGED")
        assert caller.post("/recordings/0/fork", json={"step": 1}).status_code == 200
    with running("Echo-v0") as server, server.http() as caller:
        for path in ("/recordings", "/recordings/0/history"):
            assert "--record" in assert_refused(caller.get(path), "NOT_FOUND")["message"]
