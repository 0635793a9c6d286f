"""Runs verifiers' OpenEnv task set unchanged, with scripted replies in place of a model."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import SimpleNamespace

from verifiers.v1.tasksets.openenv.taskset import OpenEnvConfig, OpenEnvEnv, OpenEnvTaskset

GAMES = {  # plain words, a number, and JSON; and the return
    "Echo-v0": (["hello", '{"message": "you"}', ""], 0.8),
    "GridWorld-v0": ([*["right"] * 4, *["2"] * 4, ""], 1 - 7 * 0.01),
}


class Player:
    """The interface of verifiers' agents that the task set uses."""

    def __init__(self, replies):
        self.replies = iter(replies)
        self.trace = SimpleNamespace(rewards={}, stop=lambda reason: None)
        self.trace.record_reward = self.trace.rewards.__setitem__

    @asynccontextmanager
    async def interaction(self, task):
        yield self

    async def turn(self, payload):
        assert json.loads(payload)["action_schema"]["title"] not in ("Action", "CallToolAction")
        return SimpleNamespace(terminated=False, last_reply=next(self.replies))


async def play(url, id):
    config = OpenEnvConfig(base_url=f"{url}/envs/{id}", resets=[{"seed": 1}])
    (task,) = OpenEnvTaskset(config).load()
    replies, expected = GAMES[id]
    player = Player(replies)
    await OpenEnvEnv.run(None, task, SimpleNamespace(player=player))
    found = player.trace.rewards["openenv_reward"]
    assert abs(found - expected) < 1e-6, f"{id}: a return of {found}, expected {expected}"


def verdict(url):
    try:
        for id in GAMES:
            asyncio.run(play(url, id))
    except Exception as error:  # noqa: BLE001 - any error is the result
        return f"{type(error).__name__}: {error}"
    return "ok"


if __name__ == "__main__":
    print(json.dumps({f"verifiers {version('verifiers')}, OpenEnv task set": verdict(sys.argv[1])}))
