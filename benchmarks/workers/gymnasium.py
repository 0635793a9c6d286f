"""Gymnasium's CartPole: a single one, its hand-written NumPy vector environment, and SyncVectorEnv."""

import importlib
from functools import partial
from typing import Any

from benchmarks.loops import single_loop, vector_loop
from benchmarks.worker import Run, serve

gymnasium: Any = importlib.import_module("gymnasium")


def single(num_envs: int) -> Run:
    assert num_envs == 1
    return single_loop(gymnasium.make("CartPole-v1"))


def vector(mode: str, num_envs: int) -> Run:
    env = gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode=mode)
    env.reset(seed=0)
    return vector_loop(env.step, num_envs)


if __name__ == "__main__":
    vectors = {"numpy_vector": partial(vector, "vector_entry_point"), "sync_vector": partial(vector, "sync")}
    serve({"single": single, **vectors}, ("gymnasium", "numpy"), lambda: "cpu")
