"""Folders of recordings: crashes, rotation, concurrent writers, and damaged files."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.record.full_disk import check_recorder_on_full_disk

from tropism import Box, Discrete, Session, Timestep, make
from tropism.errors import StateError, ValidationError
from tropism.record import Manifest, Reader, Recorder, Writer
from tropism.record.tail import read_tail

MANIFEST = Manifest.for_spaces(None, {}, Discrete(100), Box(-1e9, 1e9, (2,)))


def timestep_of(number: float, done: bool = False) -> Timestep:
    return Timestep(np.array([number, -number], np.float32), number, done, False, {})


def write(writer: Writer, steps: int, seed: int = 0) -> int:
    number = writer.begin(seed, None, timestep_of(0))
    for step in range(1, steps + 1):
        writer.step(number, step, step % 100, timestep_of(step))
    return number


def test_acknowledged_rows_survive_kill_9(tmp_path: Path):
    """A process that prints each recorded step is killed while shards and tails exist."""
    script = """
import sys
from tests.record.test_folder import MANIFEST, timestep_of
from tropism.record import Writer
writer = Writer(sys.argv[1], MANIFEST, shard_rows=50)
number = writer.begin(0, None, timestep_of(0))
for step in range(1, 10**9):
    writer.step(number, step, step % 100, timestep_of(step))
    print(step, flush=True)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(120)]
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    acknowledged = int([line for line in said if line.endswith("\n")][-1])
    before = Reader(tmp_path)[0]
    assert len(before) in (acknowledged, acknowledged + 1)
    assert before.observations[:, 0].tolist() == list(range(len(before) + 1))
    with Writer(tmp_path, MANIFEST, shard_rows=50) as writer:  # takes up what was left
        assert not list(tmp_path.glob("*.tail"))
        assert write(writer, 3, seed=9) == 1
    after = Reader(tmp_path)
    assert after[0].actions.tolist() == before.actions.tolist()
    assert (len(after), after[1].seed, len(after[1])) == (2, 9, 3)
    assert sum(shard.rows for shard in after.manifest.shards) == len(before) + 1 + 4


def test_tail_truncated_anywhere_is_readable(tmp_path: Path):
    writer = Writer(tmp_path / "whole", MANIFEST)
    ends = [0]
    tail = tmp_path / "whole" / "steps-000000.tail"
    number = writer.begin(0, None, timestep_of(0))
    for step in range(1, 4):
        ends.append(tail.stat().st_size)
        writer.step(number, step, step, timestep_of(step))
    data = tail.read_bytes()
    writer.close()
    cut = tmp_path / "cut.tail"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        whole = sum(length >= end for end in ends[1:])
        assert read_tail(cut, MANIFEST)["step"].to_pylist() == list(range(whole))
    cut.write_bytes(data[:60] + b"?" + data[61:])
    with pytest.raises(ValidationError, match="damaged at byte"):
        read_tail(cut, MANIFEST)


def test_failed_writes_do_not_hide_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    writer = Writer(tmp_path, MANIFEST)
    number = write(writer, 2)
    real, left = os.write, [40]

    def full(file: int, data: Any) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        fits, left[0] = min(left[0], len(data)), 0
        return real(file, data[:fits])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        writer.step(number, 3, 1, timestep_of(3))
    with pytest.raises(OSError, match="No space left"):
        writer.begin(5, None, timestep_of(0))
    monkeypatch.setattr(os, "write", real)
    writer.step(number, 3, 7, timestep_of(3))
    assert write(writer, 1, seed=6) == 1
    episodes = Reader(tmp_path)
    assert episodes[0].actions.tolist() == [1, 2, 7]
    assert episodes[1].seed == 6
    assert episodes.table().num_rows == 4 + 2
    writer.close()


def test_shard_is_written_at_the_row_or_byte_limit(tmp_path: Path):
    with Writer(tmp_path / "rows", MANIFEST, shard_rows=10) as writer:
        write(writer, 99)
    with Writer(tmp_path / "bytes", MANIFEST, shard_bytes=2_000) as writer:
        write(writer, 99)
    assert [shard.rows for shard in Reader(tmp_path / "rows").manifest.shards] == [10] * 10
    assert 2 <= len(Reader(tmp_path / "bytes").manifest.shards) <= 8
    assert len(Reader(tmp_path / "rows")[0]) == len(Reader(tmp_path / "bytes")[0]) == 99


def test_interleaved_episodes_are_separated_while_being_written(tmp_path: Path):
    writer = Writer(tmp_path, MANIFEST, shard_rows=7)
    numbers = [writer.begin(seed, None, timestep_of(seed)) for seed in range(5)]
    for step in range(1, 11):
        for number in numbers:
            writer.step(number, step, number, timestep_of(10 * step + number, step == 10))
        assert [len(episode) for episode in Reader(tmp_path)] == [step] * 5
    writer.close()
    for number, episode in enumerate(Reader(tmp_path)):
        assert episode.seed == number
        assert set(episode.actions.tolist()) == {number}
        assert episode.rewards.tolist() == [10 * step + number for step in range(1, 11)]
    assert Reader(tmp_path).table().num_rows == 55


def test_fork_is_read_with_the_steps_before_it(tmp_path: Path):
    with Writer(tmp_path, MANIFEST) as writer:
        root = write(writer, 5, seed=3)
        child = writer.fork(root, 3, timestep_of(3), seed=8)
        writer.step(child, 4, 40, timestep_of(41))
        grandchild = writer.fork(child, 4, timestep_of(41))
        same_place = writer.fork(child, 3, timestep_of(3), seed=9)
        writer.step(same_place, 4, 50, timestep_of(51))
        writer.step(grandchild, 5, 60, timestep_of(61))
    episodes = Reader(tmp_path)
    assert episodes[child].rewards.tolist() == [1, 2, 3, 41]
    assert episodes[grandchild].rewards.tolist() == [1, 2, 3, 41, 61]
    assert episodes[same_place].actions.tolist() == [1, 2, 3, 50]
    assert [episode.seed for episode in episodes] == [3, 3, 3, 3]
    assert [episode.reseeds for episode in episodes] == [{}, {4: 8}, {4: 8}, {4: 9}]
    assert [episode.parent for episode in episodes] == [None, (root, 3), (child, 4), (child, 3)]
    assert len(episodes[root]) == 5


def test_second_writer_is_rejected(tmp_path: Path):
    with Writer(tmp_path, MANIFEST), pytest.raises(StateError, match="another writer is recording"):
        Writer(tmp_path, MANIFEST)
    closed = Writer(tmp_path, MANIFEST)
    closed.close()
    closed.close()
    with pytest.raises(StateError, match="is closed"):
        closed.begin(0, None, timestep_of(0))


def test_folder_holds_one_environment(tmp_path: Path):
    with Recorder(Session(*make("CartPole-v1")), tmp_path) as recorder:
        recorder.reset(seed=0)
    with pytest.raises(ValidationError, match=r"params .*another folder"):
        Recorder(Session(*make("CartPole-v1", params={"gravity": 3.7})), tmp_path)
    with pytest.raises(ValidationError, match=r"Pendulum-v1.*CartPole-v1"):
        Recorder(Session(*make("Pendulum-v1")), tmp_path)
    with Recorder(Session(*make("CartPole-v1")), tmp_path) as recorder:
        recorder.reset(seed=1)
    assert [episode.seed for episode in Reader(tmp_path)] == [0, 1]


def test_invalid_folders_are_reported(tmp_path: Path):
    with pytest.raises(ValidationError, match=r"nowhere.*a folder of recordings"):
        Reader(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ValidationError, match="a writable folder"):
        Writer(tmp_path / "file", MANIFEST)
    folder = tmp_path / "good"
    with Writer(folder, MANIFEST) as writer:
        write(writer, 3)
    with pytest.raises(ValidationError, match="episode is 7; expected one of the 1 episodes"):
        Reader(folder)[7]
    manifest, shard = folder / "manifest.json", folder / "steps-000000.parquet"
    text, data = manifest.read_text(), shard.read_bytes()
    for version in (1, 3):
        manifest.write_text(text.replace('"format": 2', f'"format": {version}'))
        with pytest.raises(ValidationError, match=f"format is {version}; expected 2; this folder was written by"):
            Reader(folder)
    manifest.write_text(text[:50])
    with pytest.raises(ValidationError, match="a manifest written by Tropism"):
        Reader(folder)
    manifest.write_text(text)
    for place in (10, data.index(b"step"), -1):
        changed = bytearray(data)
        changed[place] ^= 1
        shard.write_bytes(changed)
        with pytest.raises(ValidationError, match="the SHA-256 of the manifest"):
            Reader(folder)[0]
    shard.unlink()
    with pytest.raises(ValidationError, match=r"steps-000000.parquet is missing"):
        Reader(folder)


def damage(folder: Path, how: str) -> None:
    """Damage a folder with a recording."""
    with Writer(folder, MANIFEST) as writer:
        write(writer, 3)
    manifest = folder / "manifest.json"
    match how:
        case "cut short":
            manifest.write_text(manifest.read_text()[:50])
        case "no JSON object":
            manifest.write_text("[]")
        case "lost":
            manifest.unlink()
        case "forgot a shard":
            Writer(folder.parent / "empty", MANIFEST).close()
            manifest.write_bytes((folder.parent / "empty" / "manifest.json").read_bytes())
        case _:
            Manifest.for_spaces({"id": "Other-v0", "arguments": {}}, {}, Discrete(100), Box(-1e9, 1e9, (2,))).write(
                folder
            )
    (folder / ".lock").unlink()


@pytest.mark.parametrize("how", ["cut short", "no JSON object", "lost", "forgot a shard", "of another environment"])
def test_damaged_folder_is_not_modified(how: str, tmp_path: Path):
    folder = tmp_path / "folder"
    damage(folder, how)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValidationError, match=r"written by Tropism|steps-000000.parquet is not listed|another folder"):
        Writer(folder, MANIFEST)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_manifest_describes_the_recording(tmp_path: Path):
    with Recorder(Session(*make("GridWorld-v0", size=7, params={"max_steps": 9})), tmp_path) as recorder:
        recorder.reset(seed=5)
        recorder.reset(seed=6)
    manifest: dict[str, Any] = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["env"] == {"id": "GridWorld-v0", "arguments": {"size": 7}}
    assert manifest["params"]["max_steps"] == 9
    assert manifest["shards"][0]["seeds"] == [5, 6]
    assert {"tropism", "jax", "numpy"} <= manifest["versions"].keys()
    assert manifest["spaces"]["action"]["maximum"] == 3


def test_crash_while_sealing_neither_loses_nor_duplicates_rows(tmp_path: Path):
    """For each combination of tail, shard and manifest that a crash can leave."""
    writer = Writer(tmp_path, MANIFEST)
    write(writer, 4)
    tail, manifest = tmp_path / "steps-000000.tail", tmp_path / "manifest.json"
    rows, before = tail.read_bytes(), manifest.read_text()
    writer.close()
    after = manifest.read_text()
    assert before != after
    for listed in (before, after):  # the shard is there, and the manifest does not know of it; or it does
        tail.write_bytes(rows)
        manifest.write_text(listed)
        assert Reader(tmp_path).table().num_rows == 5
        with Writer(tmp_path, MANIFEST) as again:
            assert again.episodes == 1
        assert [path.name for path in sorted(tmp_path.glob("steps*"))] == ["steps-000000.parquet"]
        assert Reader(tmp_path)[0].actions.tolist() == [1, 2, 3, 4]


def test_repeated_step_counts_once(tmp_path: Path):
    """A server that crashed before acknowledging a step repeats it when the client retries."""
    with Writer(tmp_path, MANIFEST) as writer:
        number = write(writer, 4)
        writer.step(number, 3, 70, timestep_of(7))
        writer.step(number, 4, 80, timestep_of(8))
        writer.step(number, 4, 90, timestep_of(9))
    assert Reader(tmp_path)[number].actions.tolist() == [1, 2, 70, 90]


def test_episode_with_missing_steps_is_rejected_and_others_are_read(tmp_path: Path):
    with Writer(tmp_path, MANIFEST) as writer:
        number = write(writer, 2)
        writer.step(number, 5, 1, timestep_of(1))
        other = write(writer, 1)
    with pytest.raises(ValidationError, match="all steps recorded"):
        Reader(tmp_path)[number]
    assert len(Reader(tmp_path)[other]) == 1


def test_failed_writes_end_the_recorded_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    check_recorder_on_full_disk(Recorder(Session(*make("CartPole-v1")), tmp_path), tmp_path, monkeypatch)
