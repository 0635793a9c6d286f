"""The commands `tropism journal …` on the journal of a stopped server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.journals import flip_bit, killed_journal, last_commit_offset, play_echo, resumed
from tests.serve.running import Running, running

from tropism.errors import ValidationError
from tropism.serve.storage.maintenance import export, forget, open_journal, problems, salvage, summaries
from tropism.serve.storage.protocol import session_key
from tropism.serve.storage.sqlite import SqliteJournal


def play_three(server: Running) -> list[str]:
    return [play_echo(6, seed)(server) for seed in (1, 2, 3)]


@pytest.fixture
def journal(tmp_path: Path) -> tuple[Path, list[str]]:
    return killed_journal(tmp_path, play_three)


def tropism(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tropism", "journal", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_commands(journal: tuple[Path, list[str]], tmp_path: Path):
    path, sessions = str(journal[0]), journal[1]
    key = session_key(sessions[0]).hex()
    assert f"{key}  Echo-v0  6 steps" in tropism("info", path).stdout
    assert "no damage found" in tropism("check", path).stdout
    assert "message 1 5" in tropism("export", path, sessions[0]).stdout
    assert "3 sessions copied" in tropism("salvage", path, str(tmp_path / "new")).stdout
    assert tropism("forget", path, sessions[0]).returncode == 0
    assert key not in tropism("info", path).stdout
    refused = tropism("info", str(tmp_path / "missing"))
    assert refused.returncode == 2
    assert "expected an existing journal file" in refused.stderr


def test_info_lists_the_sessions(journal: tuple[Path, list[str]]):
    path, sessions = journal
    with open_journal(path) as file:
        rows = summaries(file)
    assert {row.key for row in rows} == {session_key(session).hex() for session in sessions}
    assert {(row.environment, row.steps, row.problem) for row in rows} == {("Echo-v0", 6, None)}


def test_a_running_server_is_left_alone(tmp_path: Path):
    with (
        running("Echo-v0", journal=SqliteJournal(tmp_path / "journal")),
        pytest.raises(ValidationError, match="no other server"),
        open_journal(tmp_path / "journal"),
    ):
        pass


def test_a_journal_in_postgres_is_refused_without_its_password():
    address = Path("postgresql://user:secret@host/database")
    with pytest.raises(ValidationError, match="inspected with SQL") as raised, open_journal(address):
        pass
    assert "secret" not in str(raised.value)


def test_export_has_all_entries(journal: tuple[Path, list[str]]):
    path, sessions = journal
    with open_journal(path) as file:
        record, *entries = [json.loads(line) for line in export(file, sessions[1])]
    assert record["environment"] == "Echo-v0"
    assert [entry["kind"] for entry in entries] == ["reset"] + ["step"] * 6
    assert [entry["payload"]["message"] for entry in entries[1:]] == [f"message 2 {n}" for n in range(6)]


def test_forget_erases_a_session_at_once(journal: tuple[Path, list[str]]):
    path, sessions = journal
    with open_journal(path) as file:
        forget(file, sessions[1])
    content = path.read_bytes()
    assert b"message 2" not in content
    assert b"message 3" in content
    with open_journal(path) as file, pytest.raises(ValidationError, match="it matches 0"):
        forget(file, sessions[1])


def test_a_damaged_entry_is_found(journal: tuple[Path, list[str]], tmp_path: Path):
    path, sessions = journal
    with open_journal(path) as file:
        assert problems(file) == []
        file.flush_log()
    path.write_bytes(path.read_bytes().replace(b'"message 2 3"', b'"message 2 3}'))
    with open_journal(path) as file:
        (found,) = [each for each in problems(file) if each.startswith("session")]
    assert session_key(sessions[1]).hex() in found
    assert salvage(path, tmp_path / "new") == (2, 1)


def test_salvage_rescues_sessions_from_damaged_pages(tmp_path: Path):
    def play(server: Running) -> list[str]:
        return [play_echo(40, seed)(server) for seed in range(8)]

    path, sessions = killed_journal(tmp_path, play, log_size=16)
    with open_journal(path):
        pass  # moves the commits into the file
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(os.urandom(2048))
    kept, lost = salvage(path, tmp_path / "new")
    assert kept >= 4
    assert lost <= 4
    with running("Echo-v0", journal=SqliteJournal(tmp_path / "new")) as server:
        count = 0
        for session in sessions:
            with server.ws(query=f"?session_id={session}") as connection:
                reply = resumed(connection, after=40)
                assert reply["type"] == "error" or reply["data"]["step_count"] == 41
                count += reply["type"] != "error"
    assert count == kept


def test_a_damaged_write_ahead_log_is_found(journal: tuple[Path, list[str]]):
    path, _ = journal
    wal = Path(f"{path}-wal")
    flip_bit(wal, last_commit_offset(wal))
    with open_journal(path) as file:
        assert "commits of the logs are damaged" in problems(file)[0]
