"""What the workers of a Postgres journal do beside writing: release sessions, count time, delete expired sessions."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.serve.storage.postgres import PostgresServer, postgres_server
from tests.serve.storage.test_conformance import KEY, RECORD, RESET, append, claimed, fails, step, steps

from tropism.serve.storage.postgres import PostgresJournal
from tropism.serve.storage.postgres_schema import MIGRATIONS
from tropism.serve.storage.postgres_watch import PostgresWatch
from tropism.serve.storage.postgres_writer import PostgresConnection
from tropism.serve.storage.working_memory import snapshot_note

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def postgres(server: PostgresServer) -> PostgresServer:
    server.clear()
    return server


def execute(postgres: PostgresServer, sql: Any) -> list[Any]:
    with psycopg.connect(postgres.url, autocommit=True, options="-c search_path=tropism") as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def test_a_worker_releases_a_session_that_another_one_wants(postgres: PostgresServer):
    async def law() -> None:
        holder, other = PostgresJournal(postgres.url), PostgresJournal(postgres.url)
        claim = holder.open(KEY, RECORD, "a")
        wanted: list[bytes] = []

        def release(key: bytes) -> None:
            wanted.append(key)
            tasks.append(asyncio.ensure_future(holder.release(claim, b"snapshot")))

        tasks: list[asyncio.Future[None]] = []
        holder.when_wanted(release)
        await append(holder, claim, RESET)
        taken = await claimed(other, "b")
        assert (set(wanted), taken.point.snapshot, list(taken.point.before)) == ({KEY}, b"snapshot", [RESET])
        await fails(append(holder, claim, step(1)))
        await append(other, taken, step(1))
        await asyncio.gather(*tasks)
        await holder.close()
        await other.close()

    asyncio.run(law())


def test_a_worker_that_does_not_answer_keeps_its_session_until_the_lease_ends(postgres: PostgresServer):
    async def law() -> None:
        holder = PostgresJournal(postgres.url, lease_seconds=600)
        other = PostgresJournal(postgres.url, handover_seconds=0.1)
        claim = holder.open(KEY, RECORD, "a")
        await append(holder, claim, RESET)
        assert "another worker runs this session" in await fails(other.claim(KEY, "b"))
        await append(holder, claim, step(1))
        await holder.close()
        await other.close()

    asyncio.run(law())


def test_a_worker_that_lost_its_connection_is_asked_again(postgres: PostgresServer):
    async def law() -> None:
        holder, other = PostgresJournal(postgres.url, lease_seconds=600), PostgresJournal(postgres.url)
        claim, released = holder.open(KEY, RECORD, "a"), asyncio.Event()
        holder.when_wanted(lambda _: released.set())
        await append(holder, claim, RESET)
        execute(postgres, "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%'")
        asking = asyncio.ensure_future(other.claim(KEY, "b"))
        await released.wait()
        await holder.release(await claimed(holder), None)
        assert await asking is not None
        await holder.close()
        await other.close()

    asyncio.run(law())


def test_a_worker_whose_lease_expired_hears_of_the_next_claim(postgres: PostgresServer):
    """So that it drops its copy of the session, from which it could otherwise answer reads."""

    async def law() -> None:
        late, other = PostgresJournal(postgres.url, lease_seconds=0.0), PostgresJournal(postgres.url)
        claim, heard = late.open(KEY, RECORD, "a"), asyncio.Event()
        late.when_wanted(lambda _: heard.set())
        await append(late, claim, RESET)
        taken = await claimed(other, "b")
        await heard.wait()
        await late.release(claim, b"stale")  # without effect, and without an error
        await append(other, taken, step(1))
        assert (await claimed(other, "b")).point.snapshot is None
        await late.close()
        await other.close()

    asyncio.run(law())


def test_running_time_is_counted_once(postgres: PostgresServer):
    """By several workers together, and never faster than time passes."""
    asyncio.run(PostgresJournal(postgres.url).close())
    start = time.monotonic()
    watches = [
        PostgresWatch(PostgresConnection(postgres.url), lambda *_: None, 1e9, tick_seconds=0.01) for _ in range(4)
    ]
    while not (passed := execute(postgres, "select seconds from clock where ticks > 20")):
        time.sleep(0.02)
    assert 0 < passed[0][0] <= time.monotonic() - start
    journal = PostgresJournal(postgres.url)
    for watch in watches:
        watch.close(journal._reader)  # pyright: ignore[reportPrivateUsage]
    asyncio.run(journal.close())


def test_deletion_by_age_counts_running_time(postgres: PostgresServer):
    async def law() -> None:
        journal = PostgresJournal(postgres.url)
        for key in (b"old", b"young", b"leased"):
            await append(journal, journal.open(key, RECORD, "a"), RESET)
        await journal.close()
        execute(postgres, "update clock set seconds = 100")
        execute(postgres, "update sessions set used = 50 where key = 'young'")
        execute(postgres, "update sessions set expires = now() + interval '1 hour' where key = 'leased'")
        watch = PostgresWatch(PostgresConnection(postgres.url), lambda *_: None, forget_after=60.0, tick_seconds=0.01)
        while execute(postgres, "select 1 from sessions where key = 'old'"):
            await asyncio.sleep(0.01)
        assert execute(postgres, "select key from sessions order by key") == [(b"leased",), (b"young",)]
        journal = PostgresJournal(postgres.url)
        watch.close(journal._reader)  # pyright: ignore[reportPrivateUsage]
        await journal.close()

    asyncio.run(law())


def test_entries_of_earlier_episodes_are_loaded_only_if_they_led_to_a_snapshot(postgres: PostgresServer):
    async def law() -> None:
        journal = PostgresJournal(postgres.url)
        claim, note = journal.open(KEY, RECORD, "a"), snapshot_note("s", b"state")
        await append(journal, claim, RESET, step(1), note, *steps(2, 3))
        await append(journal, claim, RESET, step(4))
        execute(postgres, "insert into entries select key, 2, entry from entries where seq = 1")  # that led nowhere
        point = (await claimed(journal)).point
        assert [*point.before, *point.after] == [RESET, step(1), note, RESET, step(4)]
        await journal.close()

    asyncio.run(law())


def test_a_journal_of_the_first_version_is_migrated(postgres: PostgresServer):
    execute(postgres, "create schema tropism")
    execute(postgres, MIGRATIONS[0])
    execute(postgres, "create table version(number integer not null); insert into version values (1)")
    execute(postgres, "insert into sessions values ('key', 'Lab-v0', '{}', 'owner', 'a', 1, now())")

    async def law() -> None:
        journal = PostgresJournal(postgres.url, forget_after=60.0)
        claim = await claimed(journal, "b")
        assert claim.record == RECORD
        await append(journal, claim, RESET)
        await journal.close()

    asyncio.run(law())
