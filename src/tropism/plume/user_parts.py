"""A user's own Python objects as parts of a search: what they must have, are told, and may return."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array
from tropism.errors import StateError, ValidationError
from tropism.plume.fields.field import Field
from tropism.plume.motion import Boundary, Motion
from tropism.plume.rewards import Reward
from tropism.plume.scene import Agent, Scene
from tropism.plume.sensors import Sensor

# What each part must have, in the order in which the first that is missing is named.
NEEDED = {
    "plume": ("sample(x, y, t=None)",),
    "wind_field": ("sample(position)",),
    "sensor_model": ("observation_space", "get_observation(env_state)"),
    "action_model": ("action_space", "process_action(action, agent, grid_size)"),
    "reward_fn": ("compute_reward(prev_state, action, next_state, plume_field)",),
}


class Position(NamedTuple):
    x: Any
    y: Any


class GridSize(NamedTuple):
    width: int
    height: int


@dataclass
class AgentState:
    """The agent as a user's part sees it; each call is handed its own."""

    position: Any  # a Position; what a user puts there may be any pair
    orientation: Any = 0.0  # degrees, 0 along +x and 90 along +y
    step_count: int = 0
    total_reward: float = 0.0
    goal_reached: bool = False


class Surroundings(Mapping[str, Any]):
    """What a user's sensor is told. `plume_field`, the (height, width) array, is made when it is read."""

    def __init__(self, told: dict[str, Any], plume_field: Callable[[], NDArray[Any]]):
        self._told = told
        self._plume_field = plume_field

    def __getitem__(self, name: str) -> Any:
        if name == "plume_field" and name not in self._told:
            self._told[name] = self._plume_field()
        return self._told[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._told, "plume_field": None})

    def __len__(self) -> int:
        return len({*self._told, "plume_field"})


def require(name: str, component: Any) -> Any:
    """The component, if it has all that its part must have."""
    if isinstance(component, type):
        raise ValidationError(name, component, "an instance, not the class")
    for member in NEEDED[name]:
        attribute, is_method = member.split("(")[0], "(" in member
        if not hasattr(component, attribute) or (is_method and not callable(getattr(component, attribute))):
            kind = type(component).__name__
            missing = f"{name} {kind} has no {'method' if is_method else 'attribute'} {member}"
            raise ValidationError(name, component, f"an object with {', '.join(NEEDED[name])}", missing)
    return component


def finite(name: str, value: Any) -> float:
    """A number that a user's part returned."""
    number = as_array(value)
    if number is None or number.size != 1 or not np.isfinite(number).all():
        raise ValidationError(name, value, "a finite number")
    return float(number.reshape(()))


def called(component: Any, method: str, step: int) -> str:
    """How an error names what a component returned."""
    return f"what {type(component).__name__}.{method} returned at step {step}"


def sampled(plume: Any, x: Any, y: Any, step: int) -> float:
    """The concentration now; a plume that is not told the time by `advance_to_step` is asked with it."""
    value = plume.sample(x, y) if hasattr(plume, "advance_to_step") else plume.sample(x, y, t=step)
    return finite(called(plume, "sample", step), value)


def blown(wind: Any, x: Any, y: Any, step: int) -> NDArray[Any]:
    value = wind.sample(Position(x, y))
    velocity = as_array(value)
    if velocity is None or velocity.shape != (2,) or not np.isfinite(velocity).all():
        raise ValidationError(called(wind, "sample", step), value, "two finite numbers, the velocity (x, y)")
    return velocity


def raster_of(plume: Any, shape: tuple[int, int], step: int) -> NDArray[Any]:
    """The (height, width) array of a plume: its own `field_array`, or sampled point by point."""
    value = getattr(plume, "field_array", None)
    if value is None:
        return np.array([[sampled(plume, x, y, step) for x in range(shape[1])] for y in range(shape[0])])
    value = value() if callable(value) else value
    array = as_array(value)
    if array is None or array.shape != shape:
        raise ValidationError(f"{type(plume).__name__}.field_array", value, f"an array of shape {shape}")
    return array


class Looked(Exception):  # noqa: N818 - not an error: says that a part asked for what only the host knows
    """A part that was to be compiled asked a plume or wind that is a Python object."""


class Body(Agent):
    """An agent whose point is one object, by which `Unseen` knows it again."""

    point: Float[Array, " 2"]

    @classmethod
    def of(cls, agent: Agent) -> "Body":
        return cls(agent.x, agent.y, agent.heading, agent.moved_x, agent.moved_y, agent.lost, agent.xy)

    @property
    def xy(self) -> Float[Array, " 2"]:
        return self.point


class Unseen(Field):
    """Stands for a user's plume, or with `inner` for its wind, where parts are compiled.

    All it knows is its state: a point, and what is smelled there. Who asks for more has `Looked`.
    """

    source: Any
    inner: Field | None = None

    def init(self, key: Any) -> Any:
        return ()

    def advance(self, key: Any, state: Any) -> Any:
        return ()

    def concentration(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        if self.inner is not None:
            return self.inner.concentration(state, xy)
        point, here = state
        if xy is not point:
            raise Looked
        return jnp.asarray(here, xy.dtype)

    def wind(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        raise Looked


@dataclass(frozen=True)
class Moment:
    """The state of a `HostField`: the step, and what the agent smelled then, since a user's plume has no past."""

    step: int
    xy: Position
    here: float
    inner: Any


class HostField(Field):
    """A user's plume (or a library's, `inner`) in a user's wind, for library parts; never compiled."""

    source: Any
    inner: Field | None
    parts: Any  # `plume`, `wind`, and `now`, the step they are at
    shape: tuple[int, int]

    def init(self, key: Any) -> Any:
        raise StateError("plume", self.parts.plume, "to be reset by the environment")

    def advance(self, key: Any, state: Any) -> Any:
        raise StateError("plume", self.parts.plume, "to be advanced by the environment")

    def concentration(self, state: Moment, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        if self.inner is not None:
            return self.inner.concentration(state.inner, xy)
        points, parts = np.asarray(xy, float), self.parts
        if state.step == parts.now and _is_raster(points, self.shape):
            return jnp.asarray(raster_of(parts.plume, self.shape, parts.now), float)
        values = [self._smell(state, x, y) for x, y in points.reshape(-1, 2).tolist()]
        return jnp.asarray(np.reshape(values, points.shape[:-1]), float)

    def _smell(self, state: Moment, x: Any, y: Any) -> float:
        plume, now = self.parts.plume, self.parts.now
        if state.step == now:
            return sampled(plume, x, y, now)
        if (x, y) == state.xy:
            return state.here
        return finite(called(plume, "sample", state.step), plume.sample(x, y, t=state.step))

    def wind(self, state: Moment, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        points = np.asarray(xy, float)
        values = [blown(self.parts.wind, x, y, self.parts.now) for x, y in points.reshape(-1, 2).tolist()]
        return jnp.asarray(np.reshape(values, points.shape), float)


def _is_raster(points: NDArray[Any], shape: tuple[int, int]) -> bool:
    last = (shape[1] - 1, shape[0] - 1)
    return points.shape == (*shape, 2) and not points[0, 0].any() and tuple(points[-1, -1]) == last


@dataclass(frozen=True)
class Declared:
    """A user's space; wrapped, since the arrays in it are no numbers of params."""

    space: Space


class OwnSensor(Sensor):
    """Stands for a user's sensor among params."""

    declared: Declared = eqx.field(static=True)

    def space(self, shape: tuple[int, int]) -> Space:
        return self.declared.space

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        raise Looked


class OwnMotion(Motion):
    """Stands for a user's action model among params."""

    declared: Declared = eqx.field(static=True)
    boundary: Boundary = eqx.field(static=True, default="stop")
    on_grid: bool = eqx.field(static=True, default=True)

    @property
    def action_space(self) -> Space:
        return self.declared.space

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        raise Looked


class OwnReward(Reward):
    """Stands for a user's reward among params."""

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Any) -> Float[Array, ""]:
        raise Looked
