"""plume_nav_sim's static Gaussian plume in Gymnasium; without a vector environment, one takes all the steps."""

import importlib
from typing import Any

from benchmarks.loops import single_loop
from benchmarks.worker import Run, serve

gymnasium: Any = importlib.import_module("gymnasium")
registration: Any = importlib.import_module("plume_nav_sim.registration")


def plume(num_envs: int) -> Run:
    return single_loop(gymnasium.make(registration.register_env()), action_bits=2, num_envs=num_envs)


if __name__ == "__main__":
    serve({"plume": plume}, ("plume-nav-sim", "gymnasium", "numpy"), lambda: "cpu")
