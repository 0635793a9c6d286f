"""Motions: what an agent can do with its body, and what happens at walls."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float

from tropism.core.spaces import Box, Discrete, Space
from tropism.errors import ValidationError
from tropism.plume.scene import Agent, Arena, Scene, direction

Boundary = Literal["stop", "wrap", "absorb"]

CARDINAL = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])  # up, right, down, left
COMPASS = np.array([(0, 0), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)])


class Motion(eqx.Module):
    """Abstract. `boundary`: stop at the wall, wrap around, or absorb: leaving ends the episode."""

    words: ClassVar[tuple[str, ...]] = ()  # what a language agent calls the actions
    boundary: eqx.AbstractVar[Boundary]
    on_grid: eqx.AbstractVar[bool]  # whether positions stay whole numbers

    def __check_init__(self) -> None:
        if self.boundary not in get_args(Boundary):
            raise ValidationError("boundary", self.boundary, f"one of {', '.join(get_args(Boundary))}")

    @property
    @abstractmethod
    def action_space(self) -> Space: ...

    @abstractmethod
    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Float[Array, ""], Float[Array, " 2"]]:
        """The heading after the action, and the displacement it asks for."""

    def move(self, key: Any, action: Any, scene: Scene) -> Agent:
        """The agent after the action, with walls and obstacles in the way."""
        agent, arena = scene.agent, scene.arena
        heading, displacement = self.steer(key, action, scene)
        xy, lost = self._keep(agent.xy + displacement.astype(agent.xy.dtype), arena)
        xy = jnp.where(arena.blocked(xy), agent.xy, xy)
        heading = jnp.asarray(heading, agent.heading.dtype)
        return Agent(xy, heading, xy - agent.xy, agent.lost | lost)

    def _keep(self, xy: Float[Array, " 2"], arena: Arena) -> tuple[Any, Any]:
        low, high = jnp.stack(arena.low).astype(xy.dtype), jnp.stack(arena.high).astype(xy.dtype)
        if self.boundary == "wrap":
            period = high - low + (1 if self.on_grid else 0)
            return low + jnp.mod(xy - low, period), jnp.zeros((), bool)
        inside = arena.inside(xy)
        return jnp.clip(xy, low, high), ~inside if self.boundary == "absorb" else jnp.zeros((), bool)


class _Table(Motion):
    """Abstract: a table of displacements, one for each action."""

    table: ClassVar[Any]
    boundary: Boundary = eqx.field(static=True, default="stop")
    step_length: Any = 1.0
    on_grid: bool = eqx.field(static=True, default=True)

    @property
    def action_space(self) -> Discrete:
        return Discrete(len(self.table))

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        step = jnp.asarray(self.table)[action]
        turned = jnp.arctan2(step[1].astype(scene.agent.heading.dtype), step[0].astype(scene.agent.heading.dtype))
        return jnp.where((step == 0).all(), scene.agent.heading, turned), step * self.step_length


class Cardinal(_Table):
    """Four directions: 0 up, 1 right, 2 down, 3 left."""

    words: ClassVar[tuple[str, ...]] = ("up", "right", "down", "left")
    table: ClassVar[Any] = CARDINAL


class Compass(_Table):
    """0 stays; 1 to 8 are the eight directions, clockwise from up."""

    words: ClassVar[tuple[str, ...]] = (
        *("stay", "up", "up-right", "right", "down-right"),
        *("down", "down-left", "left", "up-left"),
    )
    table: ClassVar[Any] = COMPASS


class Oriented(Motion):
    """0 goes forward, 1 turns left, 2 turns right, on the spot."""

    words: ClassVar[tuple[str, ...]] = ("forward", "turn left", "turn right")
    boundary: Boundary = eqx.field(static=True, default="stop")
    step_length: Any = 1.0
    turn: Any = 90.0  # degrees
    on_grid: bool = eqx.field(static=True, default=True)

    @property
    def action_space(self) -> Discrete:
        return Discrete(3)

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        turn = jnp.deg2rad(jnp.asarray(self.turn, scene.agent.heading.dtype)) * jnp.array([0, 1, -1])[action]
        step = direction(scene.agent.heading) * self.step_length * (action == 0)
        return _wrap_angle(scene.agent.heading + turn), jnp.round(step) if self.on_grid else step


class RunTumble(Motion):
    """0 runs straight on, 1 tumbles: turns to a random heading on the spot."""

    words: ClassVar[tuple[str, ...]] = ("run", "tumble")
    boundary: Boundary = eqx.field(static=True, default="stop")
    step_length: Any = 1.0
    on_grid: bool = eqx.field(static=True, default=False)

    @property
    def action_space(self) -> Discrete:
        return Discrete(2)

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        heading = scene.agent.heading
        tumbled = random.uniform(key, (), heading.dtype, -jnp.pi, jnp.pi)
        return jnp.where(action == 1, tumbled, heading), direction(heading) * self.step_length * (action == 0)


class Continuous(Motion):
    """Turn rate in −1…1 (positive is left) and speed in 0…1, as shares of the largest; the turn comes first."""

    boundary: Boundary = eqx.field(static=True, default="stop")
    speed: Any = 2.0  # length units a second at most
    turn_rate: Any = 6.25 * np.pi  # radians a second at most
    dt: Any = 0.04  # seconds a step
    drift: bool = eqx.field(static=True, default=False)  # whether the wind carries the agent along
    on_grid: bool = eqx.field(static=True, default=False)

    @property
    def action_space(self) -> Box:
        return Box(np.array([-1, 0], np.float32), np.array([1, 1], np.float32))

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        agent = scene.agent
        heading = _wrap_angle(agent.heading + action[0] * self.turn_rate * self.dt)
        step = direction(heading) * action[1] * self.speed * self.dt
        return heading, step + scene.wind(agent.xy) * self.dt if self.drift else step


def _wrap_angle(angle: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
