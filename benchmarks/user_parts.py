"""Steps per second and core with user components: plume_nav_sim, `PlumeEnv` with its four objects, and with one sensor.

CPU time, interleaved. plume_nav_sim is installed into `.peers/` and imported from there.

    python -m benchmarks.user_parts
"""

import argparse
import importlib
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.peers import python_of
from tropism.gym import PlumeEnv

logging.disable(logging.INFO)  # plume_nav_sim logs episodes


class Smell:
    """A user's sensor over a library field."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))

    def get_observation(self, env_state: Any) -> Any:
        x, y = env_state["agent_state"].position
        return np.array([env_state["concentration_field"].sample(x, y)], np.float32)


def import_rival() -> Callable[[str], Any]:
    libraries = Path(python_of("plume_nav_sim")).parent.parent / "lib"
    sys.path.append(str(next(libraries.glob("python3*/site-packages"))))
    return lambda name: importlib.import_module(f"plume_nav_sim.{name}")


def contenders() -> dict[str, Any]:
    rival = import_rival()
    geometry = rival("core.geometry")
    size, source = geometry.GridSize(128, 128), geometry.Coordinates(64, 64)
    parts = {
        "action": rival("actions").DiscreteGridActions(),
        "sensor": rival("observations").ConcentrationSensor(),
        "reward": rival("rewards").SparseGoalReward(source, 5.0),
        "plume": rival("plume").GaussianPlume(grid_size=size),
    }
    theirs = rival("envs.component_env").ComponentBasedEnvironment(
        action_processor=parts["action"],
        observation_model=parts["sensor"],
        reward_function=parts["reward"],
        concentration_field=parts["plume"],
        grid_size=size,
        goal_location=source,
        goal_radius=5.0,
        max_steps=1000,
        _warn_deprecated=False,
    )
    ours = PlumeEnv(
        grid_size=size,
        source_location=source,
        action_model=parts["action"],
        sensor_model=parts["sensor"],
        reward_fn=parts["reward"],
        plume=parts["plume"],
    )
    return {
        "plume_nav_sim": theirs,
        "PlumeEnv, its four objects": ours,
        "PlumeEnv, one user sensor": PlumeEnv(sensor_model=Smell()),
    }


def steps_per_second(env: Any, actions: list[int]) -> float:
    env.reset(seed=0)
    start = time.process_time()
    for action in actions:
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return len(actions) / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    envs = contenders()
    actions = np.random.default_rng(0).integers(0, 4, args.steps).tolist()
    speeds = {name: list[float]() for name in envs}
    for _ in range(args.repeats + 1):
        for name, env in envs.items():
            speeds[name].append(steps_per_second(env, actions))
    reference = np.median(speeds["plume_nav_sim"][1:])  # the first round compiles
    for name, values in speeds.items():
        median = np.median(values[1:])
        print(f"{name:28} {median:10,.0f} steps/s  {median / reference:5.2f} ×")


if __name__ == "__main__":
    main()
