"""envpool's CartPole, stepped synchronously on its default number of threads."""

import importlib
from typing import Any

from benchmarks.loops import vector_loop
from benchmarks.worker import Run, serve

envpool: Any = importlib.import_module("envpool")


def vector(num_envs: int) -> Run:
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=num_envs, seed=0)
    env.reset()
    return vector_loop(env.step, num_envs, action_dtype="int32")


if __name__ == "__main__":
    serve({"vector": vector}, ("envpool", "numpy"), lambda: "cpu")
