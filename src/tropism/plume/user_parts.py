"""User-defined Python objects as parts of a search: their required members, arguments and return values."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array
from tropism.errors import ObservationError, StateError, ValidationError
from tropism.plume.fields.field import Field
from tropism.plume.motion import Boundary, Motion
from tropism.plume.rewards import Reward
from tropism.plume.scene import AgentPose, Scene
from tropism.plume.sensors import Sensor

# The required members of each part, in the order in which they are checked.
REQUIRED_MEMBERS = {
    "plume": ("sample(x, y, t=None)",),
    "wind_field": ("sample(position)",),
    "sensor_model": ("observation_space", "get_observation(env_state)"),
    "action_model": ("action_space", "process_action(action, agent, grid_size)"),
    "reward_fn": ("compute_reward(prev_state, action, next_state, plume_field)",),
}


class Coordinates(NamedTuple):
    x: Any
    y: Any


class GridSize(NamedTuple):
    width: int
    height: int


@dataclass
class AgentState:
    """The agent as passed to user parts. No field has a default: a class attribute would slow down reads."""

    position: Any  # Coordinates; user parts may set any pair
    orientation: Any  # degrees, 0 along +x and 90 along +y
    step_count: int
    total_reward: float
    goal_reached: bool


class Surroundings(Mapping[str, Any]):
    """The input of a user's sensor. `plume_field`, the (height, width) array, is computed when it is read."""

    def __init__(self, values: dict[str, Any], shape: tuple[int, int]):
        self._values = values
        self._shape = shape

    def __getitem__(self, name: str) -> Any:
        if name == "plume_field" and name not in self._values:
            values = self._values
            values[name] = plume_raster(values["concentration_field"], self._shape, values["step_count"])
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._values, "plume_field": None})

    def __len__(self) -> int:
        return len({*self._values, "plume_field"})


def require(name: str, component: Any) -> Any:
    """The component; raises ValidationError if it lacks a required member."""
    if isinstance(component, type):
        raise ValidationError(name, component, "an instance, not the class")
    for member in REQUIRED_MEMBERS[name]:
        attribute, is_method = member.split("(")[0], "(" in member
        if not hasattr(component, attribute) or (is_method and not callable(getattr(component, attribute))):
            kind = type(component).__name__
            missing = f"{name} {kind} has no {'method' if is_method else 'attribute'} {member}"
            raise ValidationError(name, component, f"an object with {', '.join(REQUIRED_MEMBERS[name])}", missing)
    return component


def require_finite(name: str, value: Any) -> float:
    """Convert a number returned by a user's part."""
    if type(value) is float and math.isfinite(value):
        return value
    number = as_array(value)
    if number is None or number.size != 1 or not np.isfinite(number).all():
        raise ObservationError(name, value, "a finite number")
    return float(number.reshape(()))


def return_label(component: Any, method: str, step: int) -> str:
    """The name of a returned value in error messages."""
    return f"the value that {type(component).__name__}.{method} returned at step {step}"


def sample_plume(plume: Any, x: Any, y: Any, step: int) -> float:
    """The current concentration; a plume without `advance_to_step` gets the time as an argument."""
    value = plume.sample(x, y) if hasattr(plume, "advance_to_step") else plume.sample(x, y, t=step)
    if type(value) is float and math.isfinite(value):
        return value
    return require_finite(return_label(plume, "sample", step), value)


def sample_wind(wind: Any, x: Any, y: Any, step: int) -> NDArray[Any]:
    value = wind.sample(Coordinates(x, y))
    velocity = as_array(value)
    if velocity is None or velocity.shape != (2,) or not np.isfinite(velocity).all():
        raise ObservationError(return_label(wind, "sample", step), value, "two finite numbers, the velocity (x, y)")
    return velocity


def plume_raster(plume: Any, shape: tuple[int, int], step: int) -> NDArray[Any]:
    """The (height, width) array of a plume: its `field_array`, or sampled point by point."""
    value = getattr(plume, "field_array", None)
    if value is None:
        return np.array([[sample_plume(plume, x, y, step) for x in range(shape[1])] for y in range(shape[0])])
    value = value() if callable(value) else value
    if type(value) is np.ndarray and value.shape == shape and value.dtype.kind in "fiu":
        return value
    array = as_array(value)
    if array is None or array.shape != shape:
        raise ObservationError(f"{type(plume).__name__}.field_array", value, f"an array of shape {shape}")
    return array


class NeedsHost(Exception):  # noqa: N818 - not an error: the part must run on the host
    """A part being compiled used a plume or wind that is a Python object."""


class AgentAtPoint(AgentPose):
    """An agent whose point is always the same object, by which `PlaceholderField` recognizes it."""

    point: Float[Array, " 2"]

    @classmethod
    def of(cls, agent: AgentPose) -> "AgentAtPoint":
        return cls(agent.x, agent.y, agent.heading, agent.moved_x, agent.moved_y, agent.absorbed, agent.xy)

    @property
    def xy(self) -> Float[Array, " 2"]:
        return self.point


class PlaceholderField(Field):
    """Placeholder for a user's plume, or with `inner` for a user's wind, in compiled parts.

    Its state is one point and the concentration there; anything else raises `NeedsHost`.
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
        point, concentration = state
        if xy is not point:
            raise NeedsHost
        return jnp.asarray(concentration, xy.dtype)

    def wind(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        raise NeedsHost


@dataclass(frozen=True)
class HostFieldState:
    """The state of a `HostField`: the step and the agent's concentration then; a user's plume has no past states."""

    step: int
    xy: Coordinates
    concentration: float
    inner: Any


class HostField(Field):
    """A user's plume (or a library field, `inner`) with a user's wind, for library parts; never compiled."""

    source: Any
    inner: Field | None
    parts: Any  # `plume`, `wind` and `now`, their current step
    shape: tuple[int, int]

    def init(self, key: Any) -> Any:
        raise StateError("plume", self.parts.plume, "to be reset by the environment")

    def advance(self, key: Any, state: Any) -> Any:
        raise StateError("plume", self.parts.plume, "to be advanced by the environment")

    def concentration(self, state: HostFieldState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        if self.inner is not None:
            return self.inner.concentration(state.inner, xy)
        points, parts = np.asarray(xy, float), self.parts
        if state.step == parts.now and _is_raster(points, self.shape):
            return jnp.asarray(plume_raster(parts.plume, self.shape, parts.now), float)
        values = [self._sample(state, x, y) for x, y in points.reshape(-1, 2).tolist()]
        return jnp.asarray(np.reshape(values, points.shape[:-1]), float)

    def _sample(self, state: HostFieldState, x: Any, y: Any) -> float:
        plume, now = self.parts.plume, self.parts.now
        if state.step == now:
            return sample_plume(plume, x, y, now)
        if (x, y) == state.xy:
            return state.concentration
        return require_finite(return_label(plume, "sample", state.step), plume.sample(x, y, t=state.step))

    def wind(self, state: HostFieldState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        points = np.asarray(xy, float)
        values = [sample_wind(self.parts.wind, x, y, self.parts.now) for x, y in points.reshape(-1, 2).tolist()]
        return jnp.asarray(np.reshape(values, points.shape), float)


def _is_raster(points: NDArray[Any], shape: tuple[int, int]) -> bool:
    last = (shape[1] - 1, shape[0] - 1)
    return points.shape == (*shape, 2) and not points[0, 0].any() and tuple(points[-1, -1]) == last


@dataclass(frozen=True)
class DeclaredSpace:
    """A user's space; wrapped so that its arrays are not params."""

    space: Space


class UserSensor(Sensor):
    """Placeholder for a user's sensor in params."""

    declared: DeclaredSpace = eqx.field(static=True)

    def space(self, shape: tuple[int, int]) -> Space:
        return self.declared.space

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        raise NeedsHost


class UserMotion(Motion):
    """Placeholder for a user's action model in params."""

    declared: DeclaredSpace = eqx.field(static=True)
    boundary: Boundary = eqx.field(static=True, default="stop")
    on_grid: bool = eqx.field(static=True, default=True)

    @property
    def action_space(self) -> Space:
        return self.declared.space

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        raise NeedsHost


class UserReward(Reward):
    """Placeholder for a user's reward in params."""

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Any) -> Float[Array, ""]:
        raise NeedsHost
