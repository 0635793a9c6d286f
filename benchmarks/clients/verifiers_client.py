"""Runs verifiers' OpenEnv task set unchanged, with scripted replies in place of a model.

The client of `openenv` 0.10 reconnects: with it, the task set continues its episode after a dropped socket and after a
restart of the server, if its base URL names the session.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import SimpleNamespace

from interruptions import Proxy, Server, session_url
from verifiers.v1.tasksets.openenv.taskset import OpenEnvConfig, OpenEnvEnv, OpenEnvTaskset

GAMES = {  # plain words, a number, and JSON; and the return
    "Echo-v0": (["hello", '{"message": "you"}', ""], 0.8),
    "GridWorld-v0": ([*["right"] * 4, *["2"] * 4, ""], 1 - 7 * 0.01),
}


class Player:
    """The interface of verifiers' agents that the task set uses."""

    def __init__(self, replies, interruption=None):
        self.replies = iter(replies)
        self.interruption = interruption
        self.trace = SimpleNamespace(rewards={}, stop=lambda reason: None)
        self.trace.record_reward = self.trace.rewards.__setitem__

    @asynccontextmanager
    async def interaction(self, task):
        yield self

    async def turn(self, payload):
        assert json.loads(payload)["action_schema"]["title"] not in ("Action", "CallToolAction")
        if self.interruption is not None:
            self.interruption()
            await asyncio.sleep(0.2)  # the client reads the end of its socket
        return SimpleNamespace(terminated=False, last_reply=next(self.replies))


async def play(base_url, id, interruption=None):
    config = OpenEnvConfig(base_url=base_url, resets=[{"seed": 1}])
    (task,) = OpenEnvTaskset(config).load()
    replies, expected = GAMES[id]
    player = Player(replies, interruption)
    await OpenEnvEnv.run(None, task, SimpleNamespace(player=player))
    found = player.trace.rewards["openenv_reward"]
    assert abs(found - expected) < 1e-6, f"{id}: a return of {found}, expected {expected}"


async def unmodified(url):
    for id in GAMES:
        await play(f"{url}/envs/{id}", id)


async def dropped(url):
    """The socket is dropped before every step."""
    for id in GAMES:
        async with Proxy(int(url.rpartition(":")[2])) as proxy:
            await play(proxy.url + session_url(url, id), id, proxy.cut)


async def killed(_url):
    """The server is killed and started again before every step."""
    with Server(*GAMES) as server:
        await play(server.url + session_url(server.url, "Echo-v0"), "Echo-v0", server.restart)


def verdict(check, url):
    try:
        asyncio.run(check(url))
    except Exception as error:  # noqa: BLE001 - any error is the result
        return f"{type(error).__name__}: {error}"
    return "ok"


CHECKS = {"OpenEnv task set": unmodified}
INTERRUPTED = {"dropped socket": dropped, "killed server": killed}

if __name__ == "__main__":
    reconnects = tuple(map(int, version("openenv").split(".")[:2])) >= (0, 10)
    name, checks = f"verifiers {version('verifiers')}", INTERRUPTED if reconnects else CHECKS
    print(json.dumps({f"{name}, {what}": verdict(check, sys.argv[1]) for what, check in checks.items()}))
