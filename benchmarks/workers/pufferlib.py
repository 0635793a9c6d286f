"""PufferLib's CartPole in C, one vector stepped in one process."""

import importlib
from typing import Any

from benchmarks.loops import vector_loop
from benchmarks.worker import Run, serve

cartpole: Any = importlib.import_module("pufferlib.ocean.cartpole.cartpole")


def vector(num_envs: int) -> Run:
    # Its log is a summary for a dashboard, which the others do not make: once in a long while is never.
    env = cartpole.Cartpole(num_envs=num_envs, report_interval=1 << 30)
    env.reset(seed=0)
    return vector_loop(env.step, num_envs)


if __name__ == "__main__":
    serve({"vector": vector}, ("pufferlib", "numpy"), lambda: "cpu")
