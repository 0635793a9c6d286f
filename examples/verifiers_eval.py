"""Evaluates a player on GridWorld with verifiers' OpenEnv task set (pip install verifiers openenv).

Start `tropism serve GridWorld-v0`, then: python examples/verifiers_eval.py http://127.0.0.1:8000
The player here is a rule, so that no model is needed. For a model: vf-eval openenv --env.taskset.base-url URL
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from verifiers.v1.tasksets.openenv.taskset import OpenEnvConfig, OpenEnvEnv, OpenEnvTaskset


class Player:
    """Goes right, then down; replies in plain words, as a model would."""

    def __init__(self) -> None:
        self.rewards: dict[str, float] = {}
        self.trace = SimpleNamespace(record_reward=self.rewards.__setitem__, stop=print)

    @asynccontextmanager
    async def interaction(self, _task: Any):
        yield self

    async def turn(self, payload: str) -> SimpleNamespace:
        _, column = json.loads(payload)["observation"]["value"]
        return SimpleNamespace(terminated=False, last_reply="right" if column < 1 else "down")


async def main() -> None:
    url = f"{sys.argv[1]}/envs/GridWorld-v0"
    for task in OpenEnvTaskset(OpenEnvConfig(base_url=url, resets=[{"seed": 0}, {"seed": 1}])).load():
        player = Player()
        await OpenEnvEnv.run(None, task, SimpleNamespace(player=player))
        print(f"{task.data.name}: return {player.rewards['openenv_reward']:.2f}")


if __name__ == "__main__":
    asyncio.run(main())
