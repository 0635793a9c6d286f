"""The laws of the `Journal` protocol, for every implementation."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.serve.storage.postgres import PostgresServer, postgres_server

from tropism.errors import ServerError
from tropism.serve.storage.memory import MemoryJournal
from tropism.serve.storage.postgres import PostgresJournal
from tropism.serve.storage.protocol import Claim, Entry, Journal, RequestKey, SessionRecord, Ticket
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.serve.storage.working_memory import reply_note, snapshot_note

RECORD = SessionRecord("Lab-v0", "{}", "owner")
KEY = b"key"
RESET = Entry("reset", {"seed": 1}, 0.0, False, 5, RequestKey("r", 3))

Make = Callable[..., Journal]
IMPLEMENTATIONS: dict[str, Callable[[Path], Make]] = {
    "memory": lambda _: MemoryJournal,
    "sqlite": lambda folder: lambda **options: SqliteJournal(folder / "journal", **options),
    "sqlite-power": lambda folder: lambda **options: SqliteJournal(folder / "journal", "power", **options),
    "sqlite-small-log": lambda folder: lambda **options: SqliteJournal(folder / "journal", log_size=2, **options),
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=[*IMPLEMENTATIONS, pytest.param("postgres", marks=pytest.mark.slow)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Opens a journal; a second one, after the first was closed, has the same sessions if they survive."""
    if request.param != "postgres":
        return IMPLEMENTATIONS[request.param](tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    server.clear()
    return partial(PostgresJournal, server.url, handover_seconds=0.05)


def step(number: int) -> Entry:
    return Entry("step", {"value": number}, float(number), False, number)


def steps(*numbers: int) -> list[Entry]:
    return [step(number) for number in numbers]


async def append(journal: Journal, claim: Claim, *entries: Entry, snapshot: bytes | None = None) -> None:
    await journal.durable(journal.append(claim, entries, snapshot))


async def claimed(journal: Journal, worker: str = "a") -> Claim:
    claim = await journal.claim(KEY, worker)
    assert claim is not None
    return claim


async def stored(journal: Journal, claim: Claim) -> tuple[bytes | None, list[Entry], list[Entry]]:
    """What a claim after a crash of the worker loads."""
    snapshot, before, after = (await claimed(journal, claim.worker)).point
    return snapshot, list(before), list(after)


async def fails(waiting: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(ServerError) as raised:
        await waiting
    assert raised.value.code == "JOURNAL_ERROR"
    return raised.value.message


def test_entries_are_loaded_as_they_were_appended(make: Make):
    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        assert await journal.claim(b"another", "a") is None
        await append(journal, claim, RESET)
        await append(journal, claim, *steps(1, 2))
        again = await claimed(journal)
        assert again.record == RECORD
        assert again.token > claim.token
        assert (again.point.snapshot, list(again.point.before), list(again.point.after)) == (
            None,
            [],
            [RESET, *steps(1, 2)],
        )
        await journal.close()

    asyncio.run(law())


def test_a_session_is_stored_by_its_first_append(make: Make):
    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await journal.release(claim, None)
        assert await journal.claim(KEY, "a") is None
        await journal.close()

    asyncio.run(law())


def test_a_snapshot_shortens_the_replay_and_keeps_the_history(make: Make):
    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET)
        await append(journal, claim, *steps(1, 2), snapshot=b"after 2")
        await append(journal, claim, step(3))
        assert await stored(journal, claim) == (b"after 2", [RESET, *steps(1, 2)], [step(3)])
        await journal.close()

    asyncio.run(law())


def test_release_saves_the_snapshot(make: Make):
    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET, step(1))
        await journal.release(claim, b"state")
        assert await stored(journal, claim) == (b"state", [RESET, step(1)], [])
        await journal.close()

    asyncio.run(law())


def test_a_reset_deletes_the_previous_episode(make: Make):
    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET, *steps(1, 2), snapshot=b"old")
        await append(journal, claim, reply_note(RequestKey("f", 1), b"{}"))
        await append(journal, claim, RESET)
        await append(journal, claim, step(9))
        assert await stored(journal, claim) == (None, [], [RESET, step(9)])
        await journal.close()

    asyncio.run(law())


def test_entries_that_led_to_a_snapshot_outlive_their_episode(make: Make):
    note, reply = snapshot_note("s", b"\x00\xff"), reply_note(RequestKey("f", 1), b'{"a": "\xc3\xa4"}')

    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET, step(1))
        await append(journal, claim, reply)
        await append(journal, claim, note)
        await append(journal, claim, step(2), reply)
        await append(journal, claim, RESET, step(3))
        await append(journal, claim, reply)
        assert await stored(journal, claim) == (None, [RESET, step(1), note], [RESET, step(3), reply])
        claim = await claimed(journal)
        await append(journal, claim, RESET, step(4), snapshot=b"after 4")
        await append(journal, claim, step(5))
        assert await stored(journal, claim) == (b"after 4", [RESET, step(1), note, RESET, step(4)], [step(5)])
        await journal.close()

    asyncio.run(law())


def test_the_middle_of_a_long_episode_is_deleted_behind_a_snapshot(make: Make):
    note = snapshot_note("s", b"x")

    async def law() -> None:
        journal = make(max_entries=3)
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET)
        for number in range(1, 31):
            await append(journal, claim, step(number), snapshot=b"s" if number % 5 == 0 else None)
            if number == 12:
                await append(journal, claim, note)
        await append(journal, claim, step(31))
        snapshot, before, after = await stored(journal, claim)
        assert (snapshot, before[:3], before[-1], after) == (b"s", [RESET, *steps(1, 2)], step(30), [step(31)])
        assert note in before
        await journal.close()

    asyncio.run(law())


def test_a_stale_append_fails_alone(make: Make):
    async def law() -> None:
        journal = make()
        stale = journal.open(KEY, RECORD, "a")
        other = journal.open(b"other", RECORD, "a")
        await append(journal, stale, RESET)
        claim = await claimed(journal)
        tickets = [journal.append(each, [step(1)]) for each in (stale, claim)]
        tickets.append(journal.append(other, [RESET]))
        assert "taken over" in await fails(journal.durable(tickets[0]))
        await journal.durable(tickets[1])
        await journal.durable(tickets[2])
        await journal.release(stale, b"stale")
        assert await stored(journal, claim) == (None, [], [RESET, step(1)])
        await journal.close()

    asyncio.run(law())


def test_a_live_lease_excludes_other_workers(make: Make):
    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET)
        assert "another worker" in await fails(journal.claim(KEY, "b"))
        await append(journal, claim, step(1))  # the attempt revoked nothing
        await journal.release(claim, None)
        taken = await claimed(journal, "b")
        assert taken.token > claim.token
        assert list(taken.point.after) == [RESET, step(1)]
        assert "another worker" in await fails(journal.claim(KEY, "a"))
        await fails(append(journal, claim, step(2)))
        await journal.close()

    asyncio.run(law())


def test_an_expired_lease_can_be_taken_over(make: Make):
    async def law() -> None:
        journal = make(lease_seconds=0.0)
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET)
        await append(journal, claim, step(1))  # nothing has taken it over yet
        taken = await claimed(journal, "b")
        await fails(append(journal, claim, step(2)))
        await append(journal, taken, step(3))
        assert await stored(journal, taken) == (None, [], [RESET, *steps(1, 3)])
        await journal.close()

    asyncio.run(law())


def test_a_forgotten_session_is_gone_and_its_claim_revoked(make: Make):
    async def law() -> None:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET, step(1))
        await journal.forget(KEY)
        await journal.forget(b"unknown")
        assert await journal.claim(KEY, "a") is None
        for entry in (step(2), RESET):
            await fails(append(journal, claim, entry))
        assert await journal.claim(KEY, "a") is None
        await journal.close()

    asyncio.run(law())


def test_a_large_session_is_forgotten_while_others_are_written(make: Make):
    async def law() -> None:
        journal = make()
        large, other = (journal.open(key, RECORD, "a") for key in (KEY, b"other"))
        await append(journal, other, RESET)
        await append(journal, large, RESET)
        for number in range(20):
            await append(journal, large, Entry("step", {"text": "x" * 2**19}, 0.0, False, number))
        await append(journal, large, snapshot_note("s", b"x" * 2**19))
        forgetting = asyncio.ensure_future(journal.forget(KEY))
        for number in range(1, 50):
            await append(journal, other, step(number))
        await forgetting
        assert await journal.claim(KEY, "a") is None
        again = await journal.claim(b"other", "a")
        assert again is not None
        assert list(again.point.after) == [RESET, *steps(*range(1, 50))]
        await journal.close()

    asyncio.run(law())


def test_a_session_has_nothing_of_one_that_was_forgotten(make: Make):
    async def forget_and_open() -> None:
        journal = make()
        for key in (b"same", b"another"):  # the key of the forgotten session, and another one
            old = journal.open(b"same", RECORD, "a")
            await append(journal, old, RESET, *steps(1, 2, 3), snapshot_note("s", b"x"), snapshot=b"old")
            await journal.forget(b"same")
            claim = journal.open(key, RECORD, "a")
            await append(journal, claim, RESET, step(9))
            again = await journal.claim(key, "a")
            assert again is not None
            snapshot, before, after = again.point
            assert (snapshot, list(before), list(after)) == (None, [], [RESET, step(9)])
            await journal.forget(key)
        await journal.close()

    for _ in range(2):  # with a restart between them
        asyncio.run(forget_and_open())


def test_tickets_settle_in_order_and_call_back_once(make: Make):
    async def law() -> None:
        journal, settled = make(), list[int]()
        claim = journal.open(KEY, RECORD, "a")
        for number in range(20):
            ticket = journal.append(claim, [RESET if number == 0 else step(number)])
            journal.when_durable(ticket, lambda error, number=number: settled.append(number if error is None else -1))
            if number % 3 == 0:
                await asyncio.sleep(0)
        last = journal.append(claim, [step(20)])
        await journal.durable(last)
        await journal.durable(last)
        assert settled == [*range(20)]
        await journal.close()

    asyncio.run(law())


def test_appends_from_threads_are_complete_and_in_order(make: Make):
    async def law() -> None:
        journal = make()
        claims = [journal.open(bytes([number]), RECORD, "a") for number in range(4)]
        tickets: list[Ticket] = []

        def write(claim: Claim) -> None:
            tickets.extend(journal.append(claim, [RESET if number == 0 else step(number)]) for number in range(50))

        threads = [threading.Thread(target=write, args=(claim,)) for claim in claims]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            await asyncio.sleep(0)
            for ticket in tickets[-1:]:
                await journal.durable(ticket)
        for ticket in tickets:
            await journal.durable(ticket)
        for claim in claims:
            again = await journal.claim(claim.key, "a")
            assert again is not None
            assert list(again.point.after) == [RESET, *steps(*range(1, 50))]
        await journal.close()

    asyncio.run(law())


def test_a_claim_does_not_change_afterwards(make: Make):
    async def law() -> None:
        journal = make()
        await append(journal, journal.open(KEY, RECORD, "a"), RESET)
        claim = await claimed(journal)
        await append(journal, claim, step(1), snapshot=b"s")
        assert (claim.point.snapshot, list(claim.point.before), list(claim.point.after)) == (None, [], [RESET])
        await journal.close()

    asyncio.run(law())


def test_sessions_survive_a_restart_if_the_journal_says_so(make: Make):
    async def first() -> bool:
        journal = make()
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET, step(1), snapshot=b"s")
        journal.append(claim, [step(2)])  # committed by close
        await journal.close()
        return journal.survives_crashes

    async def second(survives: bool) -> None:
        journal = make()
        if survives:
            assert list((await claimed(journal, "b")).point.after) == [step(2)]  # no lease outlives the process
        else:
            assert await journal.claim(KEY, "b") is None
        await journal.close()

    asyncio.run(second(asyncio.run(first())))
