"""The state of a search on the host."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tropism.core.episode import Timestep
from tropism.envs.plume.parts import HostEpisode
from tropism.envs.plume.steps import HostSteps
from tropism.plume.scene import AgentPose
from tropism.plume.user_parts import AgentState, Coordinates


@dataclass(eq=False)
class PlumeHostState:
    """The state of an episode; a step changes a copy of it."""

    search: Any  # its parts run this episode
    episode: HostEpisode
    steps: HostSteps
    words: NDArray[Any]  # the seed's
    rng: np.random.Generator
    source: Coordinates
    goal: Coordinates  # the source, in whole numbers on a grid
    agent: AgentState
    pose: AgentPose | None  # the same agent, for library parts; None until one needs it
    moved: tuple[float, float] = (0.0, 0.0)  # over the last step, by a user's action model
    absorbed: bool = False
    timestep: Timestep | None = None  # of the engine, if there is one
    field: Any = None  # the state of a library field
    memory: Any = ()  # a library sensor's
    concentration: float = 0.0  # concentration at the agent
    distance: float = 0.0  # to the source
    trail: tuple[Coordinates, ...] = ()

    def copy(self) -> "PlumeHostState":
        twin = object.__new__(PlumeHostState)
        twin.__dict__.update(self.__dict__)
        return twin
