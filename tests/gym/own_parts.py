"""User parts of a plume environment, written from the contract's text."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces

from tropism.gym import PlumeEnv

Calls = list[tuple[Any, ...]]
ACTIONS = (0, 1, 1, 2, 3, 3, 0, 1)
SMALL: dict[str, Any] = {"grid_size": (32, 24), "goal_radius": 1.0, "max_steps": 40}


class FlickerPlume:
    """A plume whose strength is a random walk."""

    def __init__(self, calls: Calls | None = None):
        self.calls: Calls = [] if calls is None else calls
        self.strength, self.step = 1.0, 0
        self.rng = np.random.default_rng(0)

    def reset(self, seed: int) -> None:
        self.calls.append(("plume.reset", seed))
        self.rng, self.strength, self.step = np.random.default_rng(seed), 1.0, 0

    def advance_to_step(self, k: int) -> None:
        self.calls.append(("plume.advance_to_step", k))
        while self.step < k:
            self.step += 1
            self.strength = float(np.clip(self.strength + self.rng.normal(0, 0.1), 0.1, 1.0))

    def sample(self, x: Any, y: Any, t: Any = None) -> float:
        return float(self.strength * np.exp(-((x - 16) ** 2 + (y - 12) ** 2) / 200))

    @property
    def field_array(self) -> Any:
        self.calls.append(("plume.field_array",))
        y, x = np.mgrid[:24, :32]
        return self.strength * np.exp(-((x - 16) ** 2 + (y - 12) ** 2) / 200)


class GustyWind:
    def __init__(self, calls: Calls | None = None):
        self.calls: Calls = [] if calls is None else calls
        self.seed, self.step = 0, 0

    def reset(self, seed: int) -> None:
        self.calls.append(("wind.reset", seed))
        self.seed, self.step = seed, 0

    def advance_to_step(self, k: int) -> None:
        self.calls.append(("wind.advance_to_step", k))
        self.step = k

    def sample(self, position: Any) -> Any:
        return np.array([1.0 + self.step % 3, position.y / 24])


class SmoothedSensor:
    """A noisy sensor with memory that is not reset by an episode."""

    def __init__(self, calls: Calls | None = None):
        self.calls: Calls = [] if calls is None else calls
        self.observation_space = spaces.Box(-20.0, 20.0, (3,), np.float32)
        self.memory = 0.0

    def get_observation(self, env_state: Mapping[str, Any]) -> Any:
        agent = env_state["agent_state"]
        self.calls.append(("sensor", env_state["step_count"]))
        smell = env_state["concentration_field"].sample(agent.position.x, agent.position.y)
        self.memory = 0.8 * self.memory + 0.2 * smell
        wind = env_state["wind_field"].sample(agent.position)
        return np.array([self.memory, env_state["rng"].normal(0, 0.01), wind[0]])


class SlipperyMotion:
    """Steps in four directions that sometimes slip."""

    def __init__(self, calls: Calls | None = None):
        self.calls: Calls = [] if calls is None else calls
        self.action_space = spaces.Discrete(4)
        self.rng: Any = None
        self.slips = 0

    def set_rng(self, rng: Any) -> None:
        self.calls.append(("set_rng",))
        self.rng = rng

    def validate_action(self, action: Any) -> bool:
        self.calls.append(("validate_action", action))
        return self.action_space.contains(action)

    def process_action(self, action: Any, agent: Any, grid_size: Any) -> Any:
        self.calls.append(("process_action", action, agent.step_count))
        if self.rng.random() < 0.3:
            self.slips += 1
            return agent
        dx, dy = [(0, 1), (1, 0), (0, -1), (-1, 0)][action]
        x = min(max(agent.position.x + dx, 0), grid_size.width - 1)
        y = min(max(agent.position.y + dy, 0), grid_size.height - 1)
        return replace(agent, position=(x, y), orientation=90.0 * ((1 - action) % 4))


class HungryReward:
    def __init__(self, calls: Calls | None = None):
        self.calls: Calls = [] if calls is None else calls
        self.eaten = 0.0

    def compute_reward(self, prev_state: Any, action: Any, next_state: Any, plume_field: Any) -> float:
        self.calls.append(("compute_reward", prev_state.step_count, action))
        gain = plume_field.sample(*next_state.position) - plume_field.sample(*prev_state.position)
        self.eaten += gain
        return 10.0 if next_state.goal_reached else gain + 0.01 * self.eaten


class ResettingSensor(SmoothedSensor):
    """Resets its memory at the start of an episode, detected by the step count."""

    def get_observation(self, env_state: Mapping[str, Any]) -> Any:
        self.memory = self.memory if env_state["step_count"] else 0.0
        return super().get_observation(env_state)


class ResettingReward(HungryReward):
    """Resets its state at the start of an episode."""

    def compute_reward(self, prev_state: Any, action: Any, next_state: Any, plume_field: Any) -> float:
        self.eaten = self.eaten if prev_state.step_count else 0.0
        return super().compute_reward(prev_state, action, next_state, plume_field)


class PlainSensor:
    """The default sensor, written by a user."""

    observation_space = spaces.Box(0, 1, (1,))

    def get_observation(self, env_state: Any) -> Any:
        return np.array([env_state["concentration_field"].sample(*env_state["agent_state"].position)])


class FourWayMotion:
    """The default motion, written by a user."""

    action_space = spaces.Discrete(4)

    def process_action(self, action: Any, agent: Any, grid_size: Any) -> Any:
        width, height = grid_size
        x, y = agent.position
        dx, dy = [(0, 1), (1, 0), (0, -1), (-1, 0)][action]
        return SimpleNamespace(position=(min(max(x + dx, 0), width - 1), min(max(y + dy, 0), height - 1)))


class SparseReward:
    def compute_reward(self, prev_state: Any, action: Any, next_state: Any, plume_field: Any) -> Any:
        return next_state.goal_reached


class RoundPlume:
    def sample(self, x: Any, y: Any, t: Any = None) -> Any:
        return np.exp(np.float32(-((x - 16) ** 2 + (y - 12) ** 2) / 800))


def make_all_user(calls: Calls | None = None, **more: Any) -> PlumeEnv:
    parts: dict[str, Any] = {
        "plume": FlickerPlume(calls),
        "wind_field": GustyWind(calls),
        "sensor_model": SmoothedSensor(calls),
    }
    parts |= {"action_model": SlipperyMotion(calls), "reward_fn": HungryReward(calls)}
    return PlumeEnv(**{**SMALL, **parts, **more})


def make_resetting(**more: Any) -> PlumeEnv:
    """Only user parts, whose states are reset by each episode."""
    return make_all_user(sensor_model=ResettingSensor(), reward_fn=ResettingReward(), **more)


def play(env: Any, seed: int | None, actions: Any) -> list[str]:
    return [str(env.reset(seed=seed)), *(str(env.step(action)) for action in actions)]
