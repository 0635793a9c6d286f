"""Motions: the actions of an agent, how they move it, and what happens at walls."""

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
from tropism.plume.scene import AgentPose, Arena, Scene

Boundary = Literal["stop", "wrap", "absorb"]
Step = tuple[
    Float[Array, ""], Float[Array, ""]
]  # not one array: a batch of pairs is slower than two batches of numbers

CORNER = 1e-4  # fraction of a step that may cut the corner of an obstacle, so that touching a corner is allowed

CARDINAL = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])  # up, right, down, left
COMPASS = np.array([(0, 0), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)])


class Motion(eqx.Module):
    """Abstract. `boundary`: "stop" at the wall, "wrap" around, or "absorb", where leaving ends the episode."""

    words: ClassVar[tuple[str, ...]] = ()  # names of the actions, or of their entries
    boundary: eqx.AbstractVar[Boundary]
    on_grid: eqx.AbstractVar[bool]  # whether positions are whole numbers

    def __check_init__(self) -> None:
        if self.boundary not in get_args(Boundary):
            raise ValidationError("boundary", self.boundary, f"one of {', '.join(get_args(Boundary))}")

    @property
    @abstractmethod
    def action_space(self) -> Space: ...

    @property
    def step_duration(self) -> Any:
        """Seconds per step of the environment; None if the motion does not depend on it."""
        return None

    @property
    def max_step(self) -> Any:
        """The longest displacement in one step, length units; NaN if it is not known."""
        return jnp.nan

    @abstractmethod
    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Float[Array, ""], Step]:
        """The heading after the action, and the displacement without walls and obstacles."""

    def move(self, key: Any, action: Any, scene: Scene) -> AgentPose:
        """The agent after the action, with walls and obstacles."""
        agent, arena = scene.agent, scene.arena
        heading, (right, up) = self.steer(key, action, scene)
        step = right.astype(agent.x.dtype), up.astype(agent.y.dtype)
        target = agent.x + step[0], agent.y + step[1]
        bounded = self._bound(target, arena)
        absorbed = (
            agent.absorbed | ~arena.contains(jnp.stack(target)) if self.boundary == "absorb" else jnp.zeros((), bool)
        )
        # Wrapping around is not a move back across the arena.
        end = target if self.boundary == "wrap" else bounded
        x, y, moved_x, moved_y = *bounded, end[0] - agent.x, end[1] - agent.y
        if arena.obstacles is not None:
            clear = self._is_clear(*lax.stop_gradient((agent, step, bounded, arena)))
            x, y = jnp.where(clear, x, agent.x), jnp.where(clear, y, agent.y)
            moved_x, moved_y = jnp.where(clear, moved_x, 0), jnp.where(clear, moved_y, 0)
        return AgentPose(x, y, jnp.asarray(heading, agent.heading.dtype), moved_x, moved_y, absorbed)

    def _is_clear(self, agent: AgentPose, step: Step, end: Step, arena: Arena) -> Bool[Array, ""]:
        """Whether no cell on the path is an obstacle: long steps do not jump over walls."""
        width, height = arena.cell_size
        first_x, interval_x = _crossings((agent.x - arena.low[0]) / width, step[0] / width)
        first_y, interval_y = _crossings((agent.y - arena.low[1]) / height, step[1] / height)

        def continues(carry: Any) -> Any:
            clear, next_x, next_y = carry
            return clear & (jnp.minimum(next_x, next_y) < 1)

        def enter_cell(carry: Any) -> Any:
            _, next_x, next_y = carry
            since = jnp.minimum(next_x, next_y)
            next_x = jnp.where(next_x <= since, next_x + interval_x, next_x)
            next_y = jnp.where(next_y <= since, next_y + interval_y, next_y)
            until = jnp.minimum(jnp.minimum(next_x, next_y), 1)
            fraction = (since + until) / 2
            here = self._bound((agent.x + fraction * step[0], agent.y + fraction * step[1]), arena)
            return ~arena.is_blocked(jnp.stack(here)) | (until - since < CORNER), next_x, next_y

        clear, _, _ = lax.while_loop(continues, enter_cell, (~arena.is_blocked(jnp.stack(end)), first_x, first_y))
        return clear

    def initial_heading(self, heading: Float[Array, ""]) -> Float[Array, ""]:
        """The heading at the start of an episode: the possible heading nearest to a random one."""
        return heading

    def _bound(self, xy: Step, arena: Arena) -> Step:
        """Move a point back into the arena."""
        x, y = (self._bound_coordinate(*side) for side in zip(xy, arena.low, arena.high, strict=True))
        return x, y

    def _bound_coordinate(self, side: Float[Array, ""], low: Any, high: Any) -> Float[Array, ""]:
        low, high = jnp.asarray(low, side.dtype), jnp.asarray(high, side.dtype)
        if self.boundary == "wrap":
            return low + jnp.mod(side - low, high - low + (1 if self.on_grid else 0))
        return jnp.clip(side, low, high)


class _StepMotion(Motion):
    """Abstract: an action moves the agent by `step_length`, or not at all."""

    boundary: Boundary = eqx.field(static=True, default="stop")
    step_length: Any = 1.0
    on_grid: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        checks.require_positive(step_length=self.step_length)
        if self.on_grid and isinstance(self.step_length, int | float) and self.step_length != round(self.step_length):
            expected = "a whole number on a grid; otherwise set on_grid=False"
            raise ValidationError("step_length", self.step_length, expected)

    @property
    def max_step(self) -> Any:
        return self.step_length


class _TableMotion(_StepMotion):
    """Abstract: a table of displacements, one for each action."""

    table: ClassVar[Any]

    @property
    def action_space(self) -> Discrete:
        return Discrete(len(self.table))

    @property
    def max_step(self) -> Any:
        return self.step_length * float(np.hypot(*self.table.T).max())

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        agent = scene.agent
        right, up = (_lookup(column, action, agent.x.dtype) for column in self.table.T)
        heading = _lookup(np.arctan2(self.table[:, 1], self.table[:, 0]), action, agent.heading.dtype)
        for stay in np.flatnonzero(~self.table.any(1)):
            heading = jnp.where(action == stay, agent.heading, heading)
        return heading, (right * self.step_length, up * self.step_length)


class Cardinal(_TableMotion):
    """Four directions: 0 up, 1 right, 2 down, 3 left."""

    words: ClassVar[tuple[str, ...]] = ("up", "right", "down", "left")
    table: ClassVar[Any] = CARDINAL


class Compass(_TableMotion):
    """0 stays; 1 to 8 are the eight directions, clockwise from up."""

    words: ClassVar[tuple[str, ...]] = (
        *("stay", "up", "up-right", "right", "down-right"),
        *("down", "down-left", "left", "up-left"),
    )
    table: ClassVar[Any] = COMPASS


class Oriented(_StepMotion):
    """0 goes forward, 1 turns left, 2 turns right, on the spot."""

    words: ClassVar[tuple[str, ...]] = ("forward", "turn left", "turn right")
    turn: Any = 90.0  # degrees

    def __check_init__(self) -> None:
        checks.require_positive(turn=self.turn)

    @property
    def action_space(self) -> Discrete:
        return Discrete(3)

    def initial_heading(self, heading: Float[Array, ""]) -> Float[Array, ""]:
        """On a grid a multiple of the turn, so that the agent faces the direction in which it moves."""
        if not self.on_grid:
            return heading
        turn = jnp.deg2rad(jnp.asarray(self.turn, heading.dtype))
        return _wrap_angle(jnp.round(heading / turn) * turn)

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        heading = scene.agent.heading
        turn = jnp.deg2rad(jnp.asarray(self.turn, heading.dtype)) * _lookup(np.array([0, 1, -1]), action, heading.dtype)
        right, up = _displacement(heading, self.step_length * (action == 0))
        return _wrap_angle(heading + turn), (jnp.round(right), jnp.round(up)) if self.on_grid else (right, up)


class RunTumble(_StepMotion):
    """0 runs straight ahead, 1 tumbles: turns to a random heading on the spot."""

    words: ClassVar[tuple[str, ...]] = ("run", "tumble")
    on_grid: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.on_grid:
            raise ValidationError("on_grid", True, "False: a tumble can end at any angle")

    @property
    def action_space(self) -> Discrete:
        return Discrete(2)

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        heading = scene.agent.heading
        random_heading = random.uniform(key, (), heading.dtype, -jnp.pi, jnp.pi)
        return jnp.where(action == 1, random_heading, heading), _displacement(heading, self.step_length * (action == 0))


class Continuous(Motion):
    """Turn rate in −1…1 (positive is left) and speed in 0…1, as fractions of the maximum; the turn is applied first."""

    words: ClassVar[tuple[str, ...]] = ("turn", "speed")
    boundary: Boundary = eqx.field(static=True, default="stop")
    speed: Any = 2.0  # maximum, length units per second
    turn_rate: Any = 6.25 * np.pi  # maximum, radians per second
    dt: Any = 0.04  # seconds per step
    drift: bool = eqx.field(static=True, default=False)  # whether the wind carries the agent along
    on_grid: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        checks.require_positive(speed=self.speed, turn_rate=self.turn_rate, dt=self.dt)
        if self.on_grid:
            raise ValidationError("on_grid", True, "False: the speed of this motion is continuous")

    @property
    def action_space(self) -> Box:
        return Box(np.array([-1, 0], np.float32), np.array([1, 1], np.float32))

    @property
    def step_duration(self) -> Any:
        return self.dt

    @property
    def max_step(self) -> Any:
        """Without the wind's drift."""
        return self.speed * self.dt

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        agent = scene.agent
        heading = _wrap_angle(agent.heading + action[0] * self.turn_rate * self.dt)
        right, up = _displacement(heading, action[1] * self.speed * self.dt)
        if not self.drift:
            return heading, (right, up)
        wind = scene.wind(agent.xy) * self.dt
        return heading, (right + wind[0], up + wind[1])


class WindRelative(_StepMotion):
    """0 upwind, 1 crosswind to the left of upwind, 2 crosswind to the right, 3 downwind.

    The agent faces where it believes the wind comes from. Its heading is that estimate: in each step it turns
    towards upwind by 1/`memory_steps` of the way, and in calm air not at all.
    """

    words: ClassVar[tuple[str, ...]] = ("upwind", "crosswind left", "crosswind right", "downwind")
    memory_steps: Any = 1.0  # 1: the wind of this step alone
    on_grid: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        checks.require_positive(memory_steps=self.memory_steps)
        if self.on_grid:
            raise ValidationError("on_grid", True, "False: the wind can have any direction")

    @property
    def action_space(self) -> Discrete:
        return Discrete(4)

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Step]:
        agent = scene.agent
        wind = scene.wind(agent.xy).astype(agent.heading.dtype)
        speed = jnp.sqrt(jnp.sum(wind**2))
        before = jnp.stack(_displacement(agent.heading, 1.0))
        upwind = jnp.where(speed > 0, -wind / jnp.maximum(speed, jnp.finfo(speed.dtype).tiny), before)
        facing = before + (upwind - before) / self.memory_steps
        heading = jnp.arctan2(facing[1], facing[0])
        turn = _lookup(np.array([0, np.pi / 2, -np.pi / 2, np.pi]), action, heading.dtype)
        return heading, _displacement(heading + turn, self.step_length)


def _crossings(at: Float[Array, ""], by: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The first cell boundary crossed along one axis, and the interval between crossings, as fractions of the step."""
    ahead = jnp.where(by < 0, -at, at)
    length = jnp.maximum(jnp.abs(by), jnp.finfo(by.dtype).tiny)
    return (jnp.floor(ahead + 0.5) + 0.5 - ahead) / length, 1 / length


def _lookup(values: Any, action: Any, dtype: Any) -> Array:
    """`values[action]` of a short table, by comparisons: a gather is slower, also in a batch."""
    entry = jnp.asarray(values[0], dtype)
    for number, value in enumerate(values[1:], 1):
        entry = jnp.where(action == number, jnp.asarray(value, dtype), entry)
    return entry


def _displacement(heading: Float[Array, ""], distance: Any) -> Step:
    return jnp.cos(heading) * distance, jnp.sin(heading) * distance


def _wrap_angle(angle: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
