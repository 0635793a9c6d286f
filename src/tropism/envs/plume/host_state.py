"""The state of a search on the host."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tropism.core.episode import Timestep
from tropism.plume.scene import AgentPose
from tropism.plume.user_parts import AgentState, Coordinates


@dataclass(eq=False)
class HostEpisode:
    """What stays the same in an episode, and the actions from which it is replayed."""

    search: Any  # its parts run this episode
    seed: int
    params: Any
    initial_parts: Any  # copies of the user's sensor, motion and reward at its start; None if they cannot be copied
    words: NDArray[Any]  # the seed's
    rng: np.random.Generator
    source: Coordinates
    goal: Coordinates  # the source, in whole numbers on a grid
    actions: list[Any] = field(default_factory=list[Any])

    def __post_init__(self) -> None:
        self.goal_radius, self.max_steps = float(self.params.goal_radius), int(self.params.max_steps)
        self.goal_location = tuple(self.goal)


class PlumeHostState:
    """The state after a step. Only what every step uses is set by the constructor."""

    absorbed = False
    pose: AgentPose | None = None  # the same agent, for library parts; None until one needs it
    timestep: Timestep | None = None  # of the engine, if there is one
    field: Any = None  # the state of a library field
    memory: Any = ()  # a library sensor's
    trail: tuple[Coordinates, ...] = ()
    _agent: AgentState | None = None

    def __init__(self, episode: HostEpisode, position: Coordinates, orientation: float, previous: Coordinates):
        self.episode = episode
        self.position = position
        self.orientation = orientation  # degrees
        self.previous = previous  # the position before the step
        self.step_count, self.total_reward = 0, 0.0
        self.concentration, self.distance, self.goal_reached = 0.0, 0.0, False

    def agent(self) -> AgentState:
        """The agent for the user's reward and sensor. They may keep it; its fields are set again at each call."""
        if (agent := self._agent) is None:
            self._agent = agent = AgentState(
                self.position, self.orientation, self.step_count, self.total_reward, self.goal_reached
            )
            return agent
        agent.position, agent.orientation, agent.goal_reached = self.position, self.orientation, self.goal_reached
        agent.step_count, agent.total_reward = self.step_count, self.total_reward
        return agent
