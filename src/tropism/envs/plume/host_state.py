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


class PlumeHostState:
    """The state after a step. Defaults are on the class: a step sets only what its parts use."""

    pose: AgentPose | None = None  # the same agent, for library parts; None until one needs it
    absorbed: bool = False
    timestep: Timestep | None = None  # of the engine, if there is one
    field: Any = None  # the state of a library field
    memory: Any = ()  # a library sensor's
    concentration: float = 0.0  # concentration at the agent
    distance: float = 0.0  # to the source
    trail: tuple[Coordinates, ...] = ()

    def __init__(self, episode: HostEpisode, agent: AgentState, previous: Coordinates):
        self.episode = episode
        self.agent = agent  # never passed to a user's part, which gets copies
        self.previous = previous  # the position before the step
