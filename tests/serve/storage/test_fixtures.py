"""A committed journal stays readable: its sessions are resumed and continue."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.journals import ACTIONS, EXPECTED, JOURNAL, outcome
from tests.serve.running import Running, running, talk

from tropism import Session, make
from tropism.errors import ValidationError
from tropism.serve.session.json_form import JsonForm
from tropism.serve.storage.schema import APPLICATION
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.wire.codec import encode

NEVER = 1e12  # seconds


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    copy = shutil.copy(JOURNAL, tmp_path_factory.mktemp("journal"))
    with running(*ACTIONS, journal=SqliteJournal(copy, forget_after=NEVER)) as started:
        yield started


def local_session(id: str, seed: int, steps: int) -> Session:
    """The session that the journal stores."""
    session = Session(*make(id))
    session.reset(seed=seed)
    for _ in range(steps):
        session.step(JsonForm(session).action(ACTIONS[id]))
    return session


def next_outcome(id: str, session: Session) -> dict[str, Any]:
    form = JsonForm(session)
    timestep = session.step(form.action(ACTIONS[id]))
    return outcome(json.loads(encode(form.reply(session, timestep))))


@pytest.mark.parametrize("id", ACTIONS)
def test_a_committed_session_is_resumed(id: str, server: Running):
    stored = json.loads(EXPECTED.read_text())[id]
    with server.ws(id, f"?session_id={stored['id']}") as connection:
        assert talk(connection, "history")["data"] == stored["history"] | {"step_count": 3}
        assert outcome(talk(connection, "step", ACTIONS[id], request_id="step")["data"]) == stored["stepped"]
        assert talk(connection, "fork", {"seed": 3}, request_id="fork")["data"] == stored["forked"]
        assert talk(connection, "state")["data"] == {"episode_id": "second", "step_count": 3}
        with local_session(id, 8, 3) as session:
            assert outcome(talk(connection, "step", ACTIONS[id])["data"]) == next_outcome(id, session)
        talk(connection, "restore", {"from": stored["snapshot_id"]})
        with local_session(id, 7, 1) as session:
            assert outcome(talk(connection, "step", ACTIONS[id])["data"]) == next_outcome(id, session)


@pytest.mark.parametrize("id", ACTIONS)
def test_a_committed_fork_is_resumed(id: str, server: Running):
    forked = json.loads(EXPECTED.read_text())[id]["forked"]
    with server.ws(id, f"?session_id={forked['session_id']}") as connection:
        assert talk(connection, "state")["data"]["step_count"] == 1
        with local_session(id, 8, 1) as session, session.fork(3) as twin:
            assert outcome(talk(connection, "step", ACTIONS[id])["data"]) == next_outcome(id, twin)


def test_params_are_stored_by_name():
    with closing(sqlite3.connect(f"file:{JOURNAL}?mode=ro&immutable=1", uri=True)) as file:
        (variant,) = file.execute("select variant from sessions where environment = 'GridWorld-v0'").fetchone()
    assert json.loads(variant) == {
        "environment": {"id": "GridWorld-v0", "arguments": {}},
        "params": {"goal_reward": 1.0, "max_steps": 100, "step_reward": -0.01},
    }


def test_an_earlier_version_is_refused_in_words(tmp_path: Path):
    path = tmp_path / "journal"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(f"create table log(x); pragma application_id = {APPLICATION}; pragma user_version = 1;")
    before = path.read_bytes()
    with pytest.raises(ValidationError, match=r"this one has version 1, whose sessions .* cannot resume") as raised:
        SqliteJournal(path)
    assert "choose another with --journal" in str(raised.value)
    assert path.read_bytes()[100:] == before[100:]
