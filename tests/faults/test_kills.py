"""Servers that are killed again and again under load: no step is lost, applied twice, or different."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any

import httpx
import pytest
from tests.faults.environments import FAILURES, Careless
from tests.serve.replies import assert_refused
from tests.serve.running import process

from tropism import Session, make
from tropism.client import AsyncClient, protocol
from tropism.client.result import StepResult, message_fields
from tropism.errors import ServerError
from tropism.serve.session.json_form import JsonForm
from tropism.wire.codec import encode

KINDS = ("CartPole-v1", "Echo-v0", "Chat-v0", "Careless", "Flaky")
CLIENTS = 32
LONGEST_EPISODE = 60  # steps; an episode of Flaky must be short enough to be replayed
SCRIPT = Path(__file__).with_name("killed_server.py")


@dataclass
class Totals:
    """Counts over all clients."""

    kills: int = 0
    steps: int = 0
    failures: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)


def twin_of(id: str) -> Session:
    own = {"Careless": Careless, "Flaky": Careless}  # the twin of Flaky never fails
    return Session(own[id]) if id in own else Session(*make(id))


def action_of(id: str, draw: random.Random) -> dict[str, Any]:
    if id == "CartPole-v1":
        return {"value": draw.randrange(2)}
    if id == "Echo-v0":
        return {"message": "x" * draw.randrange(20)}
    if id == "Chat-v0":
        return {"role": "user", "content": f"number {draw.randrange(100)}"}
    fails = id == "Careless" and draw.random() < 0.1
    return {"amount": draw.randrange(5), "failure": draw.choice(FAILURES) if fails else ""}


async def repeat(call: Any, totals: Totals) -> Any:
    """The result of a call; one that the environment failed at random is repeated."""
    while True:
        try:
            return await call()
        except ServerError as error:
            if error.code != "EXECUTION_ERROR":
                raise
            totals.failures += 1


@dataclass
class Played:
    """The current episode as the client and the twin have played it, in the form of the history."""

    seed: int | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)


async def play(url: str, number: int, totals: Totals) -> None:
    """Drive a served session and its undisturbed twin: both must be the same at every step."""
    id, draw, played = KINDS[number % len(KINDS)], random.Random(number), Played()
    async with AsyncClient(f"{url}/envs/{id}", reconnect=120.0) as client:
        with twin_of(id) as twin:
            while not totals.over.is_set():
                played = Played(seed=draw.randrange(1000))
                await play_episode(client, twin, id, draw, totals, played)
            assert (await repeat(client.state, totals)).step_count == twin.step_count
            history = await repeat(client.history, totals)
            assert (history["seed"], history["steps"]) == (played.seed, played.steps)
            assert history["step_count"] == len(played.steps) == twin.step_count


async def play_episode(
    client: AsyncClient, twin: Session, id: str, draw: random.Random, totals: Totals, played: Played
) -> None:
    form = JsonForm(twin)
    first = await repeat(lambda: client.reset(seed=played.seed), totals)
    compare(first, form.reply(twin, twin.reset(seed=played.seed)))
    for _ in range(draw.randrange(LONGEST_EPISODE)):
        action = action_of(id, draw)
        if action.get("failure"):
            with pytest.raises(ServerError, match="the environment raised"):
                await client.step(action)
            totals.failures += 1
            continue
        result = await repeat(lambda action=action: client.step(action), totals)
        reply = compare(result, form.reply(twin, twin.step(form.action(action))))
        played.steps.append({"action": action, "reward": reply["reward"], "done": reply["done"]})
        totals.steps += 1
        if totals.over.is_set() or result.done:
            return


def compare(result: StepResult, reply: dict[str, Any]) -> dict[str, Any]:
    """Compare all of a served result with the reply of the twin, which is returned as JSON."""
    expected = json.loads(encode(reply))
    outcome = (result.reward, result.done, result.terminated, result.truncated, result.metadata, result.error)
    names = ("reward", "done", "terminated", "truncated", "metadata", "error")
    assert outcome == tuple(expected.get(name) for name in names)
    hoisted = {} if isinstance(result.observation, dict) else {name: expected[name] for name in ("reward", "done")}
    assert json.loads(encode(message_fields(result.observation))) == expected["observation"] | hoisted
    return expected


async def kill_repeatedly(port: int, path: Path, durability: str, kills: int, pause: float) -> Totals:
    command = [sys.executable, str(SCRIPT), str(port), str(path), durability]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    starter = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environ)
    assert starter.stdout is not None
    totals, draw, playing = Totals(), random.Random(kills), list[asyncio.Task[None]]()
    child = 0
    try:
        while True:
            line = await asyncio.wait_for(starter.stdout.readline(), 120)
            child, url = int(line.split()[0]), line.split()[2].decode()
            playing = playing or [asyncio.create_task(play(url, number, totals)) for number in range(CLIENTS)]
            if totals.kills == kills or any(task.done() for task in playing):
                break
            await wait_for_steps(totals, playing)
            await asyncio.sleep(pause * draw.random())
            os.kill(child, signal.SIGKILL)
            totals.kills += 1
        totals.over.set()
        await asyncio.wait_for(asyncio.gather(*playing), 180)
    finally:
        starter.kill()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        await starter.wait()
    return totals


async def wait_for_steps(totals: Totals, playing: list[asyncio.Task[None]]) -> None:
    """Wait until some steps were taken, so that each kill interrupts some."""
    steps = totals.steps
    while totals.steps < steps + CLIENTS and not any(task.done() for task in playing):
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def eager_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that return at once, so that the server is under load when it is killed."""
    monkeypatch.setattr(protocol, "MAX_PAUSE", 0.1)


def run_kills(folder: Path, durability: str, kills: int, pause: float) -> Totals:
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    totals = asyncio.run(kill_repeatedly(port, folder / "journal", durability, kills, pause))
    print(f"{durability}: {totals.kills} kills, {totals.steps} steps, {totals.failures} failed ones")
    assert totals.kills == kills
    assert totals.steps >= kills * CLIENTS
    return totals


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["process", "power"])
def test_no_step_is_lost_or_repeated(tmp_path: Path, durability: str):
    run_kills(tmp_path, durability, kills=4, pause=0.5)


@pytest.mark.slow
def test_without_durability_a_kill_loses_the_sessions():
    command = ("-m", "tropism", "serve", "Echo-v0", "--port", "0", "--durability", "off")
    with process(*command) as (_, url):
        session = httpx.post(f"{url}/reset", json={}, trust_env=False).json()["session_id"]
    with process(*command) as (_, url):
        reply = httpx.get(f"{url}/state", headers={"X-Session-Id": session}, trust_env=False)
        assert_refused(reply, "SESSION_ERROR")


@pytest.mark.full
@pytest.mark.parametrize("durability", ["process", "power"])
def test_no_step_is_lost_or_repeated_in_two_hundred_kills(tmp_path: Path, durability: str):
    run_kills(tmp_path, durability, kills=200, pause=0.5)
