"""The working memory of a live session."""

import pytest

from tropism.errors import StateError
from tropism.serve.storage.protocol import Entry, RequestKey
from tropism.serve.storage.working_memory import SessionLimits, WorkingMemory, reply_note, snapshot_note

RESET, STEP = Entry("reset", {"seed": 1}, 0.0, False), Entry("step", {"value": 1}, 1.0, False)


def request(number: int) -> RequestKey:
    return RequestKey(f"r{number}", number)


def memory_of(*entries: Entry, **limits: int) -> WorkingMemory:
    memory = WorkingMemory(SessionLimits(**limits))
    for entry in entries:
        memory.append(entry)
    return memory


def test_request_ids_of_dropped_replies_are_kept():
    memory = memory_of(max_dropped_ids=2, max_reply_bytes=100)
    for number in range(5):
        memory.add_reply(request(number), bytes(51))
    assert [memory.reply(f"r{number}") is not None for number in range(5)] == [False] * 4 + [True]
    assert [memory.reply_was_dropped(f"r{number}") for number in range(5)] == [False, False, True, True, False]
    memory.append(RESET)
    assert not memory.reply_was_dropped("r3")
    assert memory.reply("r4") is None


def test_a_large_reply_is_kept_alone():
    memory = memory_of(max_reply_bytes=10)
    memory.add_reply(request(1), bytes(4))
    memory.add_reply(request(2), bytes(50))
    assert memory.reply("r1") is None
    assert memory.reply("r2") == (2, bytes(50))
    memory.add_reply(request(3), bytes(4))
    memory.add_reply(request(4), bytes(4))
    assert [memory.reply(f"r{number}") is None for number in (2, 3, 4)] == [True, False, False]


def test_a_reply_note_is_a_reply():
    assert memory_of(RESET, reply_note(request(7), b'{"a": 1}')).reply("r7") == (7, b'{"a": 1}')


def test_snapshots_survive_a_reset_with_the_entries_that_led_to_them():
    memory = memory_of(RESET, STEP, snapshot_note("s", b"\x00state"), STEP, RESET)
    assert memory.snapshot("s") == (b"\x00state", [RESET, STEP])
    assert memory.snapshot("t") is None


def test_snapshots_are_limited_in_number_and_size():
    memory = memory_of(RESET, snapshot_note("a", bytes(6)), max_snapshots=2, max_snapshot_bytes=10)
    memory.check_room(bytes(4))
    with pytest.raises(StateError, match="10 bytes"):
        memory.check_room(bytes(5))
    memory.append(snapshot_note("b", b""))
    with pytest.raises(StateError, match="2 snapshots"):
        memory.check_room(b"")


def test_the_history_is_limited_and_handed_out_as_a_copy():
    memory = memory_of(RESET, STEP, STEP, STEP, max_entries=3)
    entries = memory.entries()
    assert entries == [RESET, STEP, STEP]
    assert memory.full
    entries.clear()
    _, led = memory_of(RESET, snapshot_note("s", b"")).snapshot("s") or (b"", [])
    led.clear()
    assert len(memory) == 3
