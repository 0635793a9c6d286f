"""Motions: what an agent can do with its body, and what happens at walls."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jaxtyping import Array, Bool, Float

from tropism.core.spaces import Box, Discrete, Space
from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.scene import Agent, Arena, Scene

Boundary = Literal["stop", "wrap", "absorb"]
Step = tuple[Float[Array, ""], Float[Array, ""]]  # not one array: a batch of pairs is slower than two of numbers

CORNER = 1e-4  # the share of its way that a step may cut the corner of an obstacle: going round it exactly is allowed

CARDINAL = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])  # up, right, down, left
COMPASS = np.array([(0, 0), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)])


class Motion(eqx.Module):
    """Abstract. `boundary`: stop at the wall, wrap around, or absorb: leaving ends the episode."""

    words: ClassVar[tuple[str, ...]] = ()  # what people call the actions, or their entries
    boundary: eqx.AbstractVar[Boundary]
    on_grid: eqx.AbstractVar[bool]  # whether positions stay whole numbers

    def __check_init__(self) -> None:
        if self.boundary not in get_args(Boundary):
            raise ValidationError("boundary", self.boundary, f"one of {', '.join(get_args(Boundary))}")

    @property
    @abstractmethod
    def action_space(self) -> Space: ...

    @abstractmethod
    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Float[Array, ""], Step]:
        """The heading after the action, and the displacement it asks for."""

    def move(self, key: Any, action: Any, scene: Scene) -> Agent:
        """The agent after the action, with walls and obstacles in the way."""
        agent, arena = scene.agent, scene.arena
        heading, (right, up) = self.steer(key, action, scene)
        step = right.astype(agent.x.dtype), up.astype(agent.y.dtype)
        wanted = agent.x + step[0], agent.y + step[1]
        kept = self._keep(wanted, arena)
        lost = agent.lost | ~arena.inside(jnp.stack(wanted)) if self.boundary == "absorb" else jnp.zeros((), bool)
        # Who wraps around has not flown back across the arena.
        end = wanted if self.boundary == "wrap" else kept
        x, y, moved_x, moved_y = *kept, end[0] - agent.x, end[1] - agent.y
        if arena.obstacles is not None:
            clear = self._is_clear(*lax.stop_gradient((agent, step, kept, arena)))
            x, y = jnp.where(clear, x, agent.x), jnp.where(clear, y, agent.y)
            moved_x, moved_y = jnp.where(clear, moved_x, 0), jnp.where(clear, moved_y, 0)
        return Agent(x, y, jnp.asarray(heading, agent.heading.dtype), moved_x, moved_y, lost)

    def _is_clear(self, agent: Agent, step: Step, end: Step, arena: Arena) -> Bool[Array, ""]:
        """Whether no obstacle is on the way, cell after cell: who takes long steps jumps no wall."""
        width, height = arena.cell_size
        first_x, every_x = _crossings((agent.x - arena.low[0]) / width, step[0] / width)
        first_y, every_y = _crossings((agent.y - arena.low[1]) / height, step[1] / height)

        def on_the_way(carry: Any) -> Any:
            clear, next_x, next_y = carry
            return clear & (jnp.minimum(next_x, next_y) < 1)

        def enter(carry: Any) -> Any:
            _, next_x, next_y = carry
            since = jnp.minimum(next_x, next_y)
            next_x = jnp.where(next_x <= since, next_x + every_x, next_x)
            next_y = jnp.where(next_y <= since, next_y + every_y, next_y)
            until = jnp.minimum(jnp.minimum(next_x, next_y), 1)
            share = (since + until) / 2
            here = self._keep((agent.x + share * step[0], agent.y + share * step[1]), arena)
            return ~arena.blocked(jnp.stack(here)) | (until - since < CORNER), next_x, next_y

        clear, _, _ = lax.while_loop(on_the_way, enter, (~arena.blocked(jnp.stack(end)), first_x, first_y))
        return clear

    def facing(self, heading: Float[Array, ""]) -> Float[Array, ""]:
        """The heading an episode begins with, given a random one: what this body can turn to."""
        return heading

    def _keep(self, xy: Step, arena: Arena) -> Step:
        """A point, back in the arena."""
        x, y = (self._keep_side(*side) for side in zip(xy, arena.low, arena.high, strict=True))
        return x, y

    def _keep_side(self, side: Float[Array, ""], low: Any, high: Any) -> Float[Array, ""]:
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

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        agent = scene.agent
        right, up = (_entry(column, action, agent.x.dtype) for column in self.table.T)
        heading = _entry(np.arctan2(self.table[:, 1], self.table[:, 0]), action, agent.heading.dtype)
        for stay in np.flatnonzero(~self.table.any(1)):
            heading = jnp.where(action == stay, agent.heading, heading)
        return heading, (right * self.step_length, up * self.step_length)


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

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        heading = scene.agent.heading
        turn = jnp.deg2rad(jnp.asarray(self.turn, heading.dtype)) * _entry(np.array([0, 1, -1]), action, heading.dtype)
        right, up = _ahead(heading, self.step_length * (action == 0))
        return _wrap_angle(heading + turn), (jnp.round(right), jnp.round(up)) if self.on_grid else (right, up)


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

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        heading = scene.agent.heading
        tumbled = random.uniform(key, (), heading.dtype, -jnp.pi, jnp.pi)
        return jnp.where(action == 1, tumbled, heading), _ahead(heading, self.step_length * (action == 0))


class Continuous(Motion):
    """Turn rate in −1…1 (positive is left) and speed in 0…1, as shares of the largest; the turn comes first."""

    words: ClassVar[tuple[str, ...]] = ("turn", "speed")
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

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        agent = scene.agent
        heading = _wrap_angle(agent.heading + action[0] * self.turn_rate * self.dt)
        right, up = _ahead(heading, action[1] * self.speed * self.dt)
        if not self.drift:
            return heading, (right, up)
        wind = scene.wind(agent.xy) * self.dt
        return heading, (right + wind[0], up + wind[1])


def _crossings(at: Float[Array, ""], by: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """When a way along one axis, in cells, first comes to another cell, and how long it is in each; as shares of it."""
    ahead = jnp.where(by < 0, -at, at)
    length = jnp.maximum(jnp.abs(by), jnp.finfo(by.dtype).tiny)
    return (jnp.floor(ahead + 0.5) + 0.5 - ahead) / length, 1 / length


def _entry(values: Any, action: Any, dtype: Any) -> Array:
    """`values[action]` of a short table, by comparing: a gather is slower, alone and in a batch."""
    entry = jnp.asarray(values[0], dtype)
    for number, value in enumerate(values[1:], 1):
        entry = jnp.where(action == number, jnp.asarray(value, dtype), entry)
    return entry


def _ahead(heading: Float[Array, ""], distance: Any) -> Step:
    return jnp.cos(heading) * distance, jnp.sin(heading) * distance


def _wrap_angle(angle: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi


def _check_step(step_length: Any, on_grid: bool) -> None:
    checks.positive(step_length=step_length)
    if on_grid and isinstance(step_length, int | float) and step_length != round(step_length):
        raise ValidationError("step_length", step_length, "a whole number on a grid; else say on_grid=False")
