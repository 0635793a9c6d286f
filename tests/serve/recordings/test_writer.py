"""A server that records: every acknowledged step is on disk, in the recording or in the journal."""

import errno
import os
import shutil
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyarrow import ArrowInvalid
from tests.serve.lab import END, SLEEP, STAY, Lab
from tests.serve.recordings.games import game, verify
from tests.serve.replies import assert_refused
from tests.serve.running import Running, labs, process, running, talk, until
from websockets.sync.client import connect

from tropism import Session, make
from tropism.errors import ValidationError
from tropism.record import Manifest, Reader, Recorder, Writer
from tropism.serve.recordings.writer import RecordingWriter
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.memory import MemoryJournal
from tropism.serve.storage.protocol import Journal
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.serve.storage.working_memory import SessionLimits


@pytest.mark.parametrize("journal", [None, MemoryJournal()], ids=["from entries", "directly"])
def test_sessions_forks_and_restores_are_recorded(journal: Journal | None, tmp_path: Path):
    with running("Echo-v0", own=game(), record=tmp_path, journal=journal) as server:
        play_connect_four(server)
        with server.http("Echo-v0") as caller:
            caller.post("/reset", json={"seed": 1, "episode_id": "ep-1"})
            caller.post("/step", json={"action": {"message": "hej 😀"}, "request_id": "once"})
            caller.post("/step", json={"action": {"message": "hej 😀"}, "request_id": "once"})
            caller.post("/step", json={"action": {"shout": "refused"}})
            caller.post("/close")
            during = verify(tmp_path / "Echo-v0")
        assert (during[0].id, len(during[0]), during[0].action(1)["message"]) == ("ep-1", 1, "hej 😀")
    reader = verify(tmp_path / "ConnectFour-v0")
    assert [episode.actions.tolist() for episode in reader] == [[3, 3, 2], [3, 3, 6, 6], [3, 3, 0], [3, 3, 0, 1], [5]]
    assert [episode.parent for episode in reader] == [None, (0, 2), (0, 2), (2, 3), None]
    assert [episode.reseeds for episode in reader] == [{}, {3: 11}, {}, {}, {}]


def play_connect_four(server: Running) -> None:
    with server.ws("ConnectFour-v0") as connection:
        talk(connection, "reset", {"seed": 4})
        for column in (3, 3):
            talk(connection, "step", {"column": column})
        snapshot = talk(connection, "snapshot")["data"]["snapshot_id"]
        fork = talk(connection, "fork", {"from": "now", "seed": 11})["data"]["session_id"]
        talk(connection, "step", {"column": 2})
        with server.ws("ConnectFour-v0", f"?session_id={fork}") as twin:
            talk(twin, "step", {"column": 6})
            talk(twin, "step", {"text": "column 6"})
        talk(connection, "restore", {"from": snapshot})
        talk(connection, "step", {"column": 0})
        talk(connection, "restore", {"from": talk(connection, "snapshot")["data"]["snapshot_id"]})
        talk(connection, "step", {"column": 1})
        assert talk(connection, "history")["data"]["recording"] == 3
        talk(connection, "reset")
        talk(connection, "step", {"column": 5})


@pytest.mark.slow
def test_a_step_on_a_full_disk_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.write
    full: list[bool] = []

    def write(file: int, data: Any) -> int:
        if full and os.readlink(f"/proc/self/fd/{file}").startswith(str(tmp_path)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(os, "write", write)
    act = {"action": {"value": 1}}
    with running("CartPole-v1", own=labs(), record=tmp_path, journal=MemoryJournal()) as server:
        for id in ("CartPole-v1", "Lab-v0", "Unwritable-v0"):
            with server.http(id) as caller:
                full.append(True)
                assert_refused(caller.post("/reset", json={"seed": 1}), "NOT_RECORDED")
                full.clear()
                caller.post("/reset", json={"seed": 1})
                caller.post("/step", json=act)
                full.append(True)
                refused = caller.post("/step", json=act)
                assert_refused(refused, "NOT_RECORDED")
                assert "No space left on device" in refused.json()["message"]
                if id != "Unwritable-v0":
                    assert_refused(caller.post("/fork", json={}), "NOT_RECORDED")
                    assert_refused(caller.post("/reset", json={"seed": 2}), "NOT_RECORDED")
                full.clear()
                if id == "Unwritable-v0":  # cannot be rolled back: the episode ends
                    assert_refused(caller.post("/step", json=act), "STATE_ERROR")
                    continue
                assert caller.get("/state").json()["step_count"] == 1
                assert caller.post("/step", json=act).status_code == 200
    assert [len(episode) for episode in verify(tmp_path / "CartPole-v1")] == [2]
    assert [len(episode) for episode in verify(tmp_path / "Lab-v0", Session(Lab()))] == [2]
    assert [len(episode) for episode in Reader(tmp_path / "Unwritable-v0")] == [1]


def test_an_evicted_session_continues_its_recording(tmp_path: Path):
    with running("CartPole-v1", own=labs(), record=tmp_path, idle_timeout=0.2) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        caller.post("/step", json={"action": {"value": 1}})
        until(lambda: not len(server.app.sessions))
        assert caller.post("/step", json={"action": {"value": 0}}).status_code == 200
    assert [episode.actions.tolist() for episode in verify(tmp_path / "CartPole-v1")] == [[1, 0]]


def test_a_step_that_timed_out_is_not_recorded(tmp_path: Path):
    with running(own=labs(), record=tmp_path) as server, server.http("Lab-v0") as caller:
        caller.post("/reset", json={"seed": 1})
        late = caller.post("/step", json={"action": {"value": SLEEP}, "timeout_s": 0.05})
        assert_refused(late, "TIMEOUT")
        for action in (STAY, END):
            caller.post("/step", json={"action": {"value": action}})
    assert [episode.actions.tolist() for episode in verify(tmp_path / "Lab-v0", Session(Lab()))] == [[STAY, END]]


def test_batches_are_rejected_while_recording(tmp_path: Path):
    with running("CartPole-v1", record=tmp_path) as server, server.ws() as connection:
        reply = talk(connection, "open", {"count": 2})
        assert reply["type"] == "error"
        assert "batches are not recorded" in reply["data"]["message"]


def test_every_acknowledged_step_survives_kill_9_of_the_server(tmp_path: Path):
    """The next server appends to the same folder."""
    command = ("-m", "tropism", "serve", "GridWorld-v0", "--port", "0", "--record", str(tmp_path))
    with process(*command) as (server, url), connect(url.replace("http", "ws") + "/ws", proxy=None) as connection:
        talk(connection, "reset", {"seed": 1})
        for number in range(50):
            assert talk(connection, "step", {"value": number % 2 * 3})["type"] == "observation"
        server.send_signal(signal.SIGKILL)
    folder = tmp_path / "GridWorld-v0"
    assert len(verify(folder)[0]) == 50
    with Recorder(Session(*make("GridWorld-v0")), folder) as recorder:
        recorder.reset(seed=2)
        recorder.step(1)
    assert [(episode.seed, len(episode)) for episode in verify(folder)] == [(1, 50), (2, 1)]


def test_an_unusable_folder_is_rejected_at_startup(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(ValidationError, match="a writable folder"):
        RecordingWriter(tmp_path / "file", game().values())


@pytest.mark.parametrize(
    "error", [OSError("full"), ArrowInvalid("bad"), ValidationError("tail", 0, "rows"), KeyError()]
)
def test_all_writers_are_closed_although_one_fails(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    class Failing(Writer):
        def close(self) -> None:
            super().close()
            if self.folder.name != "CartPole-v1":
                raise error

    monkeypatch.setattr("tropism.serve.recordings.writer.Writer", Failing)
    environments = [ServedEnvironment(id, *make(id), "") for id in ("Echo-v0", "CartPole-v1", "GridWorld-v0")]
    folder = RecordingWriter(tmp_path, environments)
    expected = pytest.raises(KeyError) if isinstance(error, KeyError) else nullcontext()
    with expected:
        folder.close()
    assert len(caplog.records) == (0 if isinstance(error, KeyError) else 2)
    for each in environments:  # an open writer would hold its lock
        Writer(tmp_path / each.id, Manifest.of(Session(each.env, each.params))).close()


class Mortal(Lab):
    """Cannot be replayed once `dead`."""

    dead = False

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        if self.dead:
            raise OSError("no more")
        return super().reset(key, params)


def test_an_episode_that_cannot_be_rolled_back_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    env = Mortal()
    own = {"Mortal-v0": ServedEnvironment("Mortal-v0", env, env.default_params(), "")}
    with running(own=own, record=tmp_path, journal=MemoryJournal()) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        with monkeypatch.context() as broken:
            broken.setattr(Mortal, "dead", True)
            broken.setattr(Writer, "step", lambda *_: 1 / 0)
            assert_refused(caller.post("/step", json={"action": {"value": STAY}}), "EXECUTION_ERROR")
            assert_refused(caller.post("/step", json={"action": {"value": STAY}}), "STATE_ERROR")
        assert caller.post("/reset", json={"seed": 2}).status_code == 200
        assert caller.post("/step", json={"action": {"value": STAY}}).status_code == 200


def test_an_episode_is_recorded_when_it_ends(tmp_path: Path):
    with running(own=labs(), record=tmp_path) as server, server.ws("Lab-v0") as connection:
        talk(connection, "reset", {"seed": 1})
        talk(connection, "step", {"value": STAY})
        assert [len(episode) for episode in Reader(tmp_path / "Lab-v0")] == [0]
        talk(connection, "step", {"value": END})
        until(lambda: [len(episode) for episode in verify(tmp_path / "Lab-v0", Session(Lab()))] == [2])
        talk(connection, "reset", {"seed": 2})
        talk(connection, "step", {"value": STAY})
        talk(connection, "reset", {"seed": 3})  # deletes the entries
        assert [len(episode) for episode in verify(tmp_path / "Lab-v0", Session(Lab()))] == [2, 1, 0]


def test_the_recording_of_an_interrupted_episode_is_completed(tmp_path: Path):
    act, record = {"action": {"value": 1}}, tmp_path / "recordings"
    journal = SqliteJournal(tmp_path / "journal")
    with running("CartPole-v1", record=record, journal=journal) as server, server.http() as caller:
        headers = {"X-Session-Id": caller.post("/reset", json={"seed": 1}).headers["X-Session-Id"]}
        for _ in range(3):
            caller.post("/step", json=act)
        shutil.copytree(record, tmp_path / "left")  # as kill -9 would have left them
        for end in ("", "-wal", "-log"):
            shutil.copy(f"{journal.path}{end}", f"{tmp_path}/again{end}")
    folder = tmp_path / "left" / "CartPole-v1"
    assert [len(episode) for episode in Reader(folder)] == [0]
    again = running("CartPole-v1", record=tmp_path / "left", journal=SqliteJournal(tmp_path / "again"))
    with again as server, server.http(headers=headers) as caller:
        assert caller.post("/step", json={"action": {"value": 0}}).status_code == 200
        caller.post("/close")
        assert [episode.actions.tolist() for episode in verify(folder)] == [[1, 1, 1, 0]]
    assert [episode.actions.tolist() for episode in verify(record / "CartPole-v1")] == [[1, 1, 1]]  # by the stop


def test_an_episode_that_cannot_be_recorded_yet_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    act = {"action": {"value": 1}}
    with running("CartPole-v1", record=tmp_path) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        with monkeypatch.context() as full:
            full.setattr(Writer, "step", fail)
            assert caller.post("/step", json=act).status_code == 200
            assert_refused(caller.post("/reset", json={"seed": 2}), "NOT_RECORDED")
            assert_refused(caller.post("/fork", json={}), "NOT_RECORDED")
            assert caller.post("/step", json=act).status_code == 200
        assert caller.post("/reset", json={"seed": 2}).status_code == 200
    assert [len(episode) for episode in verify(tmp_path / "CartPole-v1")] == [2, 0]


class Drifting(Lab):
    """Replays give other observations."""

    resets: ClassVar = [0.0]

    def reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        self.resets[0] += 1
        return super().reset(key, params)

    def observation(self, state: Any) -> Any:
        return super().observation(state) + self.resets[0]


def test_an_episode_whose_replay_diverges_is_logged_and_the_session_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    env = Drifting()
    own = {"Drifting-v0": ServedEnvironment("Drifting-v0", env, env.default_params(), "")}
    with running(own=own, record=tmp_path) as server, server.http() as caller:
        caller.post("/reset", json={"seed": 1})
        caller.post("/step", json={"action": {"value": STAY}})
        assert caller.post("/reset", json={"seed": 2}).status_code == 200
    assert "its replay diverges" in caplog.text


def test_an_episode_longer_than_its_history_is_recorded(tmp_path: Path):
    limits = SessionLimits(max_entries=4, snapshot_every=2)
    actions = [0, 1, 0, 1, 1, 0, 0, 1]
    with running("CartPole-v1", record=tmp_path, session_limits=limits) as server, server.ws() as connection:
        talk(connection, "reset", {"seed": 1})
        for action in actions:
            talk(connection, "step", {"value": action})
    assert [episode.actions.tolist() for episode in verify(tmp_path / "CartPole-v1")] == [actions]
