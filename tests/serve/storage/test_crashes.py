"""Servers that are killed, and appends from threads."""

import asyncio
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from shutil import copyfile
from socket import socket
from typing import Any

import pytest
from tests.serve.running import process

from tropism import Session, make
from tropism.client import AsyncClient
from tropism.errors import DivergedError
from tropism.record import Reader, first_difference, session_of
from tropism.serve.session.json_form import JsonForm
from tropism.serve.storage.protocol import Entry, SessionRecord
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.wire.codec import encode


def test_an_episode_is_appended_atomically(tmp_path: Path):
    asyncio.run(append_from_two_threads(tmp_path / "journal"))


async def append_from_two_threads(path: Path) -> None:
    steps = 50
    reset, step = Entry("reset", {"seed": 1}, 0.0, False), Entry("step", {"value": 1}, 0.0, False)
    journal = SqliteJournal(path, log_size=10**6)
    claim = journal.open(b"s", SessionRecord("Lab-v0", "", ""), "worker")
    other = threading.Thread(target=lambda: [journal.append(claim, [reset, *[step] * steps]) for _ in range(300)])
    other.start()
    while other.is_alive():
        await journal.durable(journal.append(claim, [reset, *[step] * steps]))
    for number, group in enumerate(logged_groups(path)):
        assert len(group) % (steps + 1) == 0, f"group {number} ends in the middle of an episode"
    await journal.close()


def logged_groups(path: Path) -> list[Any]:
    """The groups that a journal committed with other changes, such as a new episode."""
    copy = path.with_name("copy")
    for end in ("", "-wal", "-log"):
        copyfile(f"{path}{end}", f"{copy}{end}")
    with closing(sqlite3.connect(copy)) as file:
        return [json.loads(entries) for (entries,) in file.execute("select entries from log order by number")]


def test_a_damaged_entry_is_an_error(tmp_path: Path):
    path = tmp_path / "journal"
    journal = SqliteJournal(path)
    claim = journal.open(b"s", SessionRecord("Lab-v0", "", ""), "worker")
    journal.append(claim, [Entry("reset", {"seed": 1}, 0.0, False)])
    asyncio.run(journal.close())
    path.write_bytes(path.read_bytes().replace(b'"reset"', b'"reset}'))
    journal = SqliteJournal(path)
    with pytest.raises(DivergedError, match="not all entries of its episode"):
        asyncio.run(journal.claim(b"s", "worker"))
    asyncio.run(journal.close())


@pytest.mark.slow
@pytest.mark.parametrize("without_llvmlite", [(), (1,), (0, 2)])
def test_clients_continue_after_the_server_is_killed(tmp_path: Path, without_llvmlite: tuple[int, ...]):
    """Whether or not the server that continues has the native engine that the killed one had."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "llvmlite.py").write_text("raise ImportError('hidden')")
    paths = [tmp_path / "hidden" if number in without_llvmlite else None for number in range(3)]
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ("-m", "tropism", "serve", "CartPole-v1", "Echo-v0", "--port", str(port))
    command += ("--journal", str(tmp_path / "journal"), "--record", str(tmp_path / "recordings"))
    asyncio.run(killed_now_and_then(command, f"http://127.0.0.1:{port}", paths))
    for folder in (tmp_path / "recordings").iterdir():
        episodes = list(Reader(folder))
        assert episodes
        assert not [each for each in episodes if first_difference(session_of(Reader(folder).manifest), each)]


async def killed_now_and_then(command: tuple[str, ...], url: str, paths: list[Path | None]) -> None:
    """Run three servers in turn, with these first paths for modules."""
    playing: list[asyncio.Task[None]] = []
    over = asyncio.Event()
    for path in paths[:2]:
        with process(*command, first_path=path):  # which kills the server at the end
            playing = playing or [asyncio.create_task(play(url, seed, over)) for seed in range(10)]
            await asyncio.sleep(1.5)
    with process(*command, first_path=paths[2]):
        over.set()
        await asyncio.wait_for(asyncio.gather(*playing), 60)


async def play(url: str, seed: int, over: asyncio.Event) -> None:
    """Drive a remote and a local session: both must see the same."""
    id, actions = [("CartPole-v1", [{"value": 0}, {"value": 1}]), ("Echo-v0", [{"message": "a"}])][seed % 2]
    local, steps = Session(*make(id)), 0
    form = JsonForm(local)
    async with AsyncClient(f"{url}/envs/{id}") as client:
        while not over.is_set():
            if local.lifecycle.value == "ready":
                action = actions[steps % len(actions)]
                body, ts = await client.step(action), local.step(form.action(action))
            else:
                body, ts = await client.reset(seed=seed), local.reset(seed=seed)
            steps += 1
            expected = json.loads(encode(form.reply(local, ts)))
            assert (body.reward, body.done) == (expected["reward"], expected["done"])
            if id == "CartPole-v1":
                assert body.observation == expected["observation"]
        assert (await client.state()).step_count == local.step_count
        rewards = [step["reward"] for step in (await client.history())["steps"]]
        assert sum(rewards) == local.total_reward
