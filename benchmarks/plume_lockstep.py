"""Compare `PlumeEnv` with plume_nav_sim step by step: its components in both environments, the same actions.

24 combinations of its actions, sensors and rewards with its plume and a moving one. Observations, rewards, flags and
positions must be equal in every step. Exit code 1 if one differs, 0 with the reason if it cannot be installed.

    python -m benchmarks.plume_lockstep
"""

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from benchmarks.peers import UnavailableError
from benchmarks.user_parts import import_rival, rival_env
from tropism.gym import PlumeEnv

SIDE, RADIUS, EPISODES, STEPS = 24, 3.0, 3, 80
Factory = Callable[[], Any]


class MovingPlume:
    """A Gaussian whose centre moves around the arena, written as a user of plume_nav_sim would."""

    def __init__(self):
        self.reset()

    def reset(self, _seed: Any = None) -> None:
        self.advance_to_step(0)

    def advance_to_step(self, step: int) -> None:
        x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
        angle = 0.1 * step
        squared = (x - 12 - 5 * np.cos(angle)) ** 2 + (y - 12 - 5 * np.sin(angle)) ** 2
        self.field_array = np.exp(-squared / 50).astype(np.float32)

    def sample(self, x: float, y: float, _time: Any = None) -> float:
        return float(self.field_array[round(y), round(x)])


def combinations(peer: Callable[[str], Any]) -> dict[str, dict[str, Factory]]:
    """A function for each component of each combination, because both environments need their own."""
    geometry, actions, sensors = peer("core.geometry"), peer("actions"), peer("observations")
    size, source = geometry.GridSize(SIDE, SIDE), geometry.Coordinates(SIDE // 2, SIDE // 2)
    parts: dict[str, dict[str, Factory]] = {
        "action_model": {
            "grid": actions.DiscreteGridActions,
            "oriented": actions.OrientedGridActions,
            "run-tumble": actions.OrientedRunTumbleActions,
        },
        "sensor_model": {
            "concentration": sensors.ConcentrationSensor,
            "antennae": lambda: sensors.AntennaeArraySensor(n_sensors=3, sensor_distance=2.0),
        },
        "reward_fn": {
            "sparse": lambda: peer("rewards").SparseGoalReward(source, RADIUS),
            "penalty": lambda: peer("rewards").StepPenaltyReward(source, RADIUS),
        },
        "plume": {"Gaussian": lambda: peer("plume").GaussianPlume(grid_size=size, sigma=6.0), "moving": MovingPlume},
    }
    names = product(*(options for options in parts.values()))
    return {
        ", ".join(chosen): {part: parts[part][name] for part, name in zip(parts, chosen, strict=True)}
        for chosen in names
    }


def environments(peer: Callable[[str], Any], factories: dict[str, Factory], start: tuple[int, int]) -> tuple[Any, Any]:
    geometry = peer("core.geometry")
    size, source = geometry.GridSize(SIDE, SIDE), geometry.Coordinates(SIDE // 2, SIDE // 2)
    common = {"grid_size": size, "goal_radius": RADIUS, "max_steps": STEPS}
    mine, other = ({part: make() for part, make in factories.items()} for _ in range(2))
    ours = PlumeEnv(**common, **mine, source_location=source, start_location=start)
    theirs = rival_env(peer, other, **common, goal_location=source, start_location=geometry.Coordinates(*start))
    for env, part in ((ours, mine["action_model"]), (theirs, other["action_model"])):
        env.reset(seed=0)
        if hasattr(part, "set_rng"):
            part.set_rng(np.random.default_rng(1))  # each environment has its own stream
    return ours, theirs


def first_difference(ours: Any, theirs: Any, rng: np.random.Generator) -> str:
    """Step both until the episode ends; what differs first, or an empty string."""
    for step in range(STEPS):
        action = int(rng.integers(theirs.action_space.n))
        obs, reward, *flags, info = ours.step(action)
        their_obs, their_reward, *their_flags, their_info = theirs.step(action)
        same = {
            "observation": np.array_equal(obs, their_obs),
            "reward": reward == their_reward,
            "flags": flags == their_flags,
            "position": tuple(info["agent_position"]) == tuple(their_info["agent_position"]),
            "distance": np.isclose(info["distance_to_goal"], their_info["distance_to_goal"], rtol=1e-12),
        }
        if not all(same.values()):
            return f"{', '.join(name for name, equal in same.items() if not equal)} in step {step + 1}"
        if any(flags):
            return ""
    return ""


def compare(peer: Callable[[str], Any], factories: dict[str, Factory]) -> str:
    for episode in range(EPISODES):
        rng = np.random.default_rng(episode)
        start = (int(rng.integers(0, 8)), int(rng.integers(0, SIDE)))
        if difference := first_difference(*environments(peer, factories, start), rng):
            return f"{difference} of episode {episode + 1}"
    return ""


def main() -> None:
    try:
        peer = import_rival()
    except UnavailableError as error:
        print(f"skipped: plume_nav_sim cannot be installed: {error}")
        return
    differences = {name: compare(peer, factories) for name, factories in combinations(peer).items()}
    for name, difference in differences.items():
        print(f"{name}: {difference or 'equal'}")
    equal = sum(not difference for difference in differences.values())
    print(f"{equal} of {len(differences)} combinations are equal")
    sys.exit(equal < len(differences))


if __name__ == "__main__":
    main()
