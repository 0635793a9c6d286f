"""Servers that share a journal in Postgres: killed, paused, and cut off from the database."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from tests.serve.storage.postgres import PostgresServer, postgres_server
from tests.serve.storage.test_conformance import KEY, RECORD, RESET, append, claimed, fails, step

from tropism import Session, make
from tropism.errors import ValidationError
from tropism.serve.storage.postgres import PostgresJournal

pytestmark = pytest.mark.slow

ID = "Pendulum-v1"
STEPS = 100
PATIENCE = 60.0  # seconds


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def postgres(server: PostgresServer) -> PostgresServer:
    server.clear()
    return server


class ServerProcess:
    """`tropism serve` on the shared journal, restarted on the same port."""

    def __init__(self, postgres: PostgresServer, port: int):
        self.url = f"http://127.0.0.1:{port}"
        options = ("--port", str(port), "--journal", postgres.url, "--lease", "1")
        self._command = (sys.executable, "-m", "tropism", "serve", ID, *options)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert "serving" in self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def pair(postgres: PostgresServer) -> Iterator[list[ServerProcess]]:
    started = [ServerProcess(postgres, postgres.port + 1 + number) for number in range(2)]
    yield started
    for each in started:
        each.kill()


class Player:
    """Plays one episode; stays with a server until it fails, and repeats failed requests with the same request id."""

    def __init__(self, servers: list[ServerProcess], seed: int):
        self._servers = servers
        self._current = seed % len(servers)
        self._seed = seed
        self._headers: dict[str, str] = {}
        self._client = httpx.Client(timeout=20)

    def play(self, steps: int) -> list[Any]:
        """The observations of the episode."""
        with self._client:
            return self._play(steps)

    def _play(self, steps: int) -> list[Any]:
        first = self._ask("reset", {"seed": self._seed, "request_id": "reset"})
        self._headers = {"X-Session-Id": first.headers["X-Session-Id"]}
        replies = [first]
        for number, action in enumerate(actions(self._seed, steps)):
            replies.append(self._ask("step", {"action": {"value": action}, "request_id": f"step-{number}"}))
        return [reply.json()["observation"]["value"] for reply in replies]

    def _ask(self, path: str, body: Any) -> httpx.Response:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            url = f"{self._servers[self._current].url}/{path}"
            try:
                reply = self._client.post(url, json=body, headers=self._headers)
            except httpx.TransportError:
                reply = None
            if reply is not None and reply.status_code == 200:
                return reply
            assert reply is None or reply.status_code == 503, reply.text
            self._current = (self._current + 1) % len(self._servers)
            time.sleep(0.1)
        raise AssertionError(f"no server answered {path} within {PATIENCE} s")


def actions(seed: int, steps: int) -> list[list[float]]:
    choice = random.Random(seed)
    return [[choice.uniform(-2, 2)] for _ in range(steps)]


def undisturbed(steps: int, seed: int) -> list[Any]:
    """The observations that a player receives if nothing fails."""
    session = Session(*make(ID))
    return [session.reset(seed=seed).obs.tolist(), *(session.step(each).obs.tolist() for each in actions(seed, steps))]


def play_through(pair: list[ServerProcess], disturb: Callable[[int], None], times: int, clients: int = 8) -> None:
    """Play while `disturb` is called; no step may be lost, applied twice, or differ."""
    with ThreadPoolExecutor(clients) as threads:
        playing = [threads.submit(Player(pair, seed).play, STEPS) for seed in range(clients)]
        for number in range(times):
            time.sleep(0.5)
            disturb(number)
            if all(each.done() for each in playing):
                playing += [threads.submit(Player(pair, len(playing) + seed).play, STEPS) for seed in range(clients)]
        for seed, each in enumerate(playing):
            assert each.result() == undisturbed(STEPS, seed)
    print(f"{times} disturbances, {len(playing) * STEPS} acknowledged steps, none lost, none applied twice")


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.full)])
def test_killed_servers_lose_nothing(pair: list[ServerProcess], kills: int):
    def kill(number: int) -> None:
        victim = random.Random(number).choice(pair)
        victim.kill()
        victim.start()

    play_through(pair, kill, kills)


def test_a_restart_of_the_database_loses_nothing(pair: list[ServerProcess], postgres: PostgresServer):
    def restart(_: int) -> None:
        postgres.stop()
        time.sleep(0.3)
        postgres.start()

    play_through(pair, restart, 3)


def test_a_server_that_was_paused_cannot_append(pair: list[ServerProcess]):
    """Its lease expires while it does not run, and another server takes the session over."""
    paused, other = pair
    reset = httpx.post(f"{paused.url}/reset", json={"seed": 1})
    headers = {"X-Session-Id": reset.headers["X-Session-Id"]}
    body = {"action": {"value": [1.0]}}
    httpx.post(f"{paused.url}/step", json=body, headers=headers)
    paused.process.send_signal(signal.SIGSTOP)
    try:
        waiting = ThreadPoolExecutor(1).submit(httpx.post, f"{paused.url}/step", json=body, headers=headers, timeout=60)
        deadline = time.monotonic() + PATIENCE
        while (reply := httpx.post(f"{other.url}/step", json=body, headers=headers)).status_code != 200:
            assert (reply.status_code, time.monotonic() < deadline) == (503, True), reply.text
            time.sleep(0.1)
        httpx.post(f"{other.url}/step", json=body, headers=headers)
    finally:
        paused.process.send_signal(signal.SIGCONT)
    late = waiting.result()  # refused, or applied after the steps of the other server, which was asked for the session
    assert late.status_code == 503 or late.json()["step_count"] == 4
    count = 3 if late.status_code == 503 else 4
    history = httpx.get(f"{other.url}/history", headers=headers).json()
    assert len(history["steps"]) == count
    expected = Session(*make(ID))
    expected.reset(seed=1)
    for _ in range(count):
        expected.step([1.0])
    state = httpx.post(f"{other.url}/step", json=body, headers=headers).json()["observation"]["value"]
    assert state == expected.step([1.0]).obs.tolist()


def test_an_interrupted_append_fails_and_its_session_is_loaded_again(postgres: PostgresServer):
    async def law() -> None:
        journal = PostgresJournal(postgres.url)
        claim = journal.open(KEY, RECORD, "a")
        await append(journal, claim, RESET)
        with psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid != pg_backend_pid()")
        await fails(append(journal, claim, step(1)))
        await fails(append(journal, claim, step(1)))  # revoked
        again = await claimed(journal)
        assert list(again.point.after) in ([RESET], [RESET, step(1)])
        await append(journal, again, step(2))
        await journal.close()

    asyncio.run(law())


def test_workers_that_start_together_migrate_once(postgres: PostgresServer):
    with ThreadPoolExecutor(8) as threads:
        journals = list(threads.map(lambda _: PostgresJournal(postgres.url), range(8)))
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("select count(*) from tropism.version").fetchone() == (1,)
    for journal in journals:
        asyncio.run(journal.close())


def test_a_journal_that_cannot_be_used_is_refused_in_words(postgres: PostgresServer):
    asyncio.run(PostgresJournal(postgres.url).close())
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("update tropism.version set number = 99")
    with pytest.raises(ValidationError, match="this one has version 99, written by a newer Tropism"):
        PostgresJournal(postgres.url)
    with pytest.raises(ValidationError, match='database "missing" does not exist'):
        PostgresJournal(postgres.url.replace("/postgres", "/missing").replace("tropism@", "tropism:secret@"))
    with pytest.raises(ValidationError, match="expected postgresql://USER@HOST/DATABASE"):
        PostgresJournal("postgresql://[localhost/x")
