"""PufferLib's CartPole in C, one vector environment in one process."""

import importlib
from typing import Any

from benchmarks.loops import vector_loop
from benchmarks.worker import Run, serve

cartpole: Any = importlib.import_module("pufferlib.ocean.cartpole.cartpole")


def vector(num_envs: int) -> Run:
    # Practically disables its dashboard log, which the other libraries do not have.
    env = cartpole.Cartpole(num_envs=num_envs, report_interval=1 << 30)
    env.reset(seed=0)
    return vector_loop(env.step, num_envs)


if __name__ == "__main__":
    serve({"vector": vector}, ("pufferlib", "numpy"), lambda: "cpu")
