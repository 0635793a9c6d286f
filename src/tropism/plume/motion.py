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
from tropism.plume import checks
from tropism.plume.scene import Agent, Scene, direction

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
        heading, step = self.steer(key, action, scene)
        # Each axis by itself: a batch of pairs is slower than two batches of numbers.
        wanted = agent.x + step[0].astype(agent.x.dtype), agent.y + step[1].astype(agent.y.dtype)
        kept = tuple(self._keep(side, low, high) for side, low, high in zip(wanted, arena.low, arena.high, strict=True))
        lost = agent.lost | ~arena.inside(jnp.stack(wanted)) if self.boundary == "absorb" else jnp.zeros((), bool)
        # Who wraps around has not flown back across the arena.
        end = wanted if self.boundary == "wrap" else kept
        free = ~arena.blocked(jnp.stack(kept))
        x, y = jnp.where(free, kept[0], agent.x), jnp.where(free, kept[1], agent.y)
        moved_x, moved_y = jnp.where(free, end[0] - agent.x, 0), jnp.where(free, end[1] - agent.y, 0)
        return Agent(x, y, jnp.asarray(heading, agent.heading.dtype), moved_x, moved_y, lost)

    def facing(self, heading: Float[Array, ""]) -> Float[Array, ""]:
        """The heading an episode begins with, given a random one: what this body can turn to."""
        return heading

    def _keep(self, side: Float[Array, ""], low: Any, high: Any) -> Float[Array, ""]:
        """One coordinate, back in the arena."""
        low, high = jnp.asarray(low, side.dtype), jnp.asarray(high, side.dtype)
        if self.boundary == "wrap":
            return low + jnp.mod(side - low, high - low + (1 if self.on_grid else 0))
        return jnp.clip(side, low, high)


class _Table(Motion):
    """Abstract: a table of displacements, one for each action."""

    table: ClassVar[Any]
    boundary: Boundary = eqx.field(static=True, default="stop")
    step_length: Any = 1.0
    on_grid: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        _check_step(self.step_length, self.on_grid)

    @property
    def action_space(self) -> Discrete:
        return Discrete(len(self.table))

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        right, up = (jnp.asarray(column, scene.agent.x.dtype)[action] for column in self.table.T)
        turned = jnp.asarray(np.arctan2(self.table[:, 1], self.table[:, 0]), scene.agent.heading.dtype)[action]
        stays = (right == 0) & (up == 0)
        return jnp.where(stays, scene.agent.heading, turned), jnp.stack([right, up]) * self.step_length


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

    def __check_init__(self) -> None:
        _check_step(self.step_length, self.on_grid)
        checks.positive(turn=self.turn)

    @property
    def action_space(self) -> Discrete:
        return Discrete(3)

    def facing(self, heading: Float[Array, ""]) -> Float[Array, ""]:
        """On a grid a multiple of the turn, so that the agent looks where it goes."""
        if not self.on_grid:
            return heading
        turn = jnp.deg2rad(jnp.asarray(self.turn, heading.dtype))
        return _wrap_angle(jnp.round(heading / turn) * turn)

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

    def __check_init__(self) -> None:
        checks.positive(step_length=self.step_length)
        if self.on_grid:
            raise ValidationError("on_grid", True, "False: a tumble ends at any angle")

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

    def __check_init__(self) -> None:
        checks.positive(speed=self.speed, turn_rate=self.turn_rate, dt=self.dt)
        if self.on_grid:
            raise ValidationError("on_grid", True, "False: this motion has any speed")

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


def _check_step(step_length: Any, on_grid: bool) -> None:
    checks.positive(step_length=step_length)
    if on_grid and isinstance(step_length, int | float) and step_length != round(step_length):
        raise ValidationError("step_length", step_length, "a whole number on a grid; else say on_grid=False")
