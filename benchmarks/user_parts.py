"""Steps per second and core with user components: plume_nav_sim, `PlumeEnv` with its four objects, and with one sensor.

CPU time, interleaved. plume_nav_sim is installed into `.peers/` and imported from there.

    python -m benchmarks.user_parts
"""

import argparse
import importlib
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.measure import RESULTS, processor
from benchmarks.peers import python_of
from benchmarks.table import number, table_as_markdown
from tropism.gym import PlumeEnv

logging.disable(logging.INFO)  # plume_nav_sim logs episodes


PEER = "plume_nav_sim"
STEPS_PER_SECOND = 20_000  # the goal for one user sensor over a library field


class Smell:
    """The concentration at the agent."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))

    def get_observation(self, env_state: Any) -> Any:
        x, y = env_state["agent_state"].position
        return np.array([env_state["concentration_field"].sample(x, y)], np.float32)


class SmellAndWind:
    """The concentration and the wind at the agent."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))

    def get_observation(self, env_state: Any) -> Any:
        here = env_state["agent_state"].position
        wind = env_state["wind_field"].sample(here)
        return np.array([env_state["concentration_field"].sample(here.x, here.y), *wind], np.float32)


class Antennae:
    """The concentration half a cell to the left and to the right of the agent."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))

    def get_observation(self, env_state: Any) -> Any:
        x, y = env_state["agent_state"].position
        plume = env_state["concentration_field"]
        return np.array([plume.sample(x - 0.5, y), plume.sample(x + 0.5, y)], np.float32)


def import_rival() -> Callable[[str], Any]:
    libraries = Path(python_of("plume_nav_sim")).parent.parent / "lib"
    sys.path.append(str(next(libraries.glob("python3*/site-packages"))))
    return lambda name: importlib.import_module(f"plume_nav_sim.{name}")


def rival_env(rival: Callable[[str], Any], parts: dict[str, Any], **arguments: Any) -> Any:
    """plume_nav_sim's environment with parts that have the names of `PlumeEnv`'s arguments."""
    return rival("envs.component_env").ComponentBasedEnvironment(
        action_processor=parts["action_model"],
        observation_model=parts["sensor_model"],
        reward_function=parts["reward_fn"],
        concentration_field=parts["plume"],
        _warn_deprecated=False,
        **arguments,
    )


def contenders() -> dict[str, Any]:
    rival = import_rival()
    geometry = rival("core.geometry")
    size, source = geometry.GridSize(128, 128), geometry.Coordinates(64, 64)
    parts = {
        "action_model": rival("actions").DiscreteGridActions(),
        "sensor_model": rival("observations").ConcentrationSensor(),
        "reward_fn": rival("rewards").SparseGoalReward(source, 5.0),
        "plume": rival("plume").GaussianPlume(grid_size=size),
    }
    theirs = rival_env(rival, parts, grid_size=size, goal_location=source, goal_radius=5.0, max_steps=1000)
    ours = PlumeEnv(grid_size=size, source_location=source, **parts)
    return {
        PEER: theirs,
        "its four objects": ours,
        "a user's sensor, static Gaussian": PlumeEnv(sensor_model=Smell()),
        "a user's sensor, meandering plume": PlumeEnv(sensor_model=Smell(), plume="meander"),
        "… of odour and wind": PlumeEnv(sensor_model=SmellAndWind(), plume="meander"),
        "… with two antennae": PlumeEnv(sensor_model=Antennae(), plume="meander"),
    }


def steps_per_second(env: Any, actions: list[int]) -> float:
    env.reset(seed=0)
    start = time.process_time()
    for action in actions:
        *_, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return len(actions) / (time.process_time() - start)


def as_result(speeds: dict[str, list[float]]) -> dict[str, Any]:
    """The result as stored: a table with a goal for each row, and the speeds of every repeat."""
    reference, cells = np.median(speeds[PEER]), list[tuple[str, ...]]()
    for name, values in speeds.items():
        median = float(np.median(values))
        ratio, goal, met = median / reference, "", ""
        if name == "its four objects":
            goal, met = "≥ 1 ×", "ok" if ratio >= 1 else "missed"
        elif name != PEER:
            goal, met = f"≥ {number(STEPS_PER_SECOND)}", "ok" if median >= STEPS_PER_SECOND else "missed"
        spread = f"{number(min(values))} to {number(max(values))}"
        cells.append((name, number(median), spread, f"{ratio:.2f} ×", goal, met))
    repeats = len(speeds[PEER])
    return {
        "name": "user_parts",
        "columns": ("components", "steps/s", "spread", "of plume_nav_sim", "goal", "outcome"),
        "cells": cells,
        "caption": f"Per second of CPU time, medians of {repeats} interleaved repeats. {processor()}, {os.cpu_count()} "
        f"cores, {platform.system()}, with other programs.",
        "speeds": speeds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON file")
    args = parser.parse_args()
    envs = contenders()
    actions = np.random.default_rng(0).integers(0, 4, args.steps).tolist()
    speeds = {name: list[float]() for name in envs}
    for env in envs.values():
        steps_per_second(env, actions[:200])  # compiles
    for _ in range(args.repeats):
        for name, env in envs.items():
            speeds[name].append(steps_per_second(env, actions))
    result = as_result(speeds)
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "user_parts.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(table_as_markdown(result["columns"], result["cells"]))


if __name__ == "__main__":
    main()
