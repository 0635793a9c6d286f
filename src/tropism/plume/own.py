"""A user's own Python objects as parts of a search, and the library's parts as such objects."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float
from numpy.typing import NDArray

from tropism.core.episode import moment_key, seed_words
from tropism.core.spaces import Space
from tropism.core.spaces.space import as_array
from tropism.errors import StateError, ValidationError
from tropism.plume.fields.field import Field
from tropism.plume.motion import Boundary, Motion
from tropism.plume.rewards import Reward
from tropism.plume.scene import Arena, Scene
from tropism.plume.sensors import Sensor
from tropism.plume.wind import Constant, Wind

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

    position: Position
    orientation: float = 0.0  # degrees, 0 along +x and 90 along +y
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


def sampled(plume: Any, x: float, y: float, step: int) -> float:
    """The concentration now; a plume that is not told the time by `advance_to_step` is asked with it."""
    value = plume.sample(x, y) if hasattr(plume, "advance_to_step") else plume.sample(x, y, t=step)
    return finite(called(plume, "sample", step), value)


def blown(wind: Any, x: float, y: float, step: int) -> NDArray[Any]:
    value = wind.sample(Position(x, y))
    velocity = as_array(value)
    if velocity is None or velocity.shape != (2,) or not np.isfinite(velocity).all():
        raise ValidationError(called(wind, "sample", step), value, "two finite numbers, the velocity (x, y)")
    return velocity


def raster_of(plume: Any, shape: tuple[int, int], step: int) -> NDArray[Any]:
    """The (height, width) array of a plume: its own `field_array`, or sampled point by point."""
    if not hasattr(plume, "field_array"):
        rows = range(shape[0])
        return np.array([[sampled(plume, x, y, step) for x in range(shape[1])] for y in rows])
    value = plume.field_array() if callable(plume.field_array) else plume.field_array
    array = as_array(value)
    if array is None or array.shape != shape:
        raise ValidationError(f"{type(plume).__name__}.field_array", value, f"an array of shape {shape}")
    return array


class Looked(Exception):  # noqa: N818 - not an error: says that a part asked for what only the host knows
    """A part that was to be compiled asked a plume or wind that is a Python object."""


class Unseen(Field):
    """Stands for a user's plume, or with `inner` for its wind, where parts are compiled: may not be looked at."""

    source: Any
    inner: Field | None = None

    def init(self, key: Any) -> Any:
        return ()

    def advance(self, key: Any, state: Any) -> Any:
        return ()

    def concentration(self, state: Any, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        if self.inner is None:
            raise Looked
        return self.inner.concentration(state, xy)

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
    plume: Any
    air: Any
    shape: tuple[int, int]
    now: int

    def init(self, key: Any) -> Any:
        raise StateError("plume", self.plume, "to be reset by the environment")

    def advance(self, key: Any, state: Any) -> Any:
        raise StateError("plume", self.plume, "to be advanced by the environment")

    def concentration(self, state: Moment, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        if self.inner is not None:
            return self.inner.concentration(state.inner, xy)
        points = np.asarray(xy, float)
        if state.step == self.now and _is_raster(points, self.shape):
            return jnp.asarray(raster_of(self.plume, self.shape, self.now), float)
        values = [self._smell(state, x, y) for x, y in points.reshape(-1, 2).tolist()]
        return jnp.asarray(np.reshape(values, points.shape[:-1]), float)

    def _smell(self, state: Moment, x: float, y: float) -> float:
        if state.step == self.now:
            return sampled(self.plume, x, y, self.now)
        if (x, y) == state.xy:
            return state.here
        return finite(called(self.plume, "sample", state.step), self.plume.sample(x, y, t=state.step))

    def wind(self, state: Moment, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        points = np.asarray(xy, float)
        values = [blown(self.air, x, y, self.now) for x, y in points.reshape(-1, 2).tolist()]
        return jnp.asarray(np.reshape(values, points.shape), float)


def _is_raster(points: NDArray[Any], shape: tuple[int, int]) -> bool:
    last = (shape[1] - 1, shape[0] - 1)
    return points.shape == (*shape, 2) and not points[0, 0].any() and tuple(points[-1, -1]) == last


def unseen(scene: Scene) -> Scene:
    """The scene as a part may see it that is compiled."""
    inner = scene.field.inner if isinstance(scene.field, HostField) else None
    state = scene.field_state.inner if inner is not None else ()
    return Scene(scene.agent, scene.arena, Unseen(scene.field.source, inner), state)


class OwnSensor(Sensor):
    """Stands for a user's sensor among params, which has no numbers of ours."""

    space_: Space = eqx.field(static=True)

    def space(self, shape: tuple[int, int]) -> Space:
        return self.space_

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        raise Looked


class OwnMotion(Motion):
    """Stands for a user's action model among params."""

    space_: Space = eqx.field(static=True)
    boundary: Boundary = eqx.field(static=True, default="stop")
    on_grid: bool = eqx.field(static=True, default=True)

    @property
    def action_space(self) -> Space:
        return self.space_

    def steer(self, key: Any, action: Any, scene: Scene) -> tuple[Any, Any]:
        raise Looked


class OwnReward(Reward):
    """Stands for a user's reward among params."""

    def __call__(self, before: Scene, action: Any, after: Scene, reached: Any) -> Float[Array, ""]:
        raise Looked


class _Clock:
    """Abstract: a library part that is moved along by `reset` and `advance_to_step`. Copies are to be reset."""

    def __init__(self, number: int):
        self.number = number  # which of a step's keys is this part's
        self.step = -1
        self.state: Any = None
        self._words: Any = None

    def key(self, step: int) -> Any:
        return random.fold_in(moment_key(self._words, step), self.number)

    def begin(self) -> Any:
        raise NotImplementedError

    def follow(self) -> Any:
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        self._words, self.step = seed_words(seed), 0
        self.state = self.begin()

    def advance_to_step(self, k: int) -> None:
        while self.step < k:
            self.step += 1
            self.state = self.follow()


class PlumeView(_Clock):
    """A library field as a user's sensor and reward expect a plume; `take` gives it the numbers of an episode."""

    def take(self, field: Field, arena: Arena) -> None:
        self.field, self.arena = field, arena

    def begin(self) -> Any:
        return _init(self.field, self.key(0))

    def follow(self) -> Any:
        return _advance(self.field, self.key(self.step), self.state)

    def sample(self, x: Any, y: Any, t: Any = None) -> float:
        if t is not None and t != self.step:
            raise ValidationError("t", t, f"None or the present step, {self.step}")
        return float(_smell(self.field, self.state, self.arena, np.array([x, y], float)))

    @property
    def field_array(self) -> NDArray[Any]:
        return np.array(_raster(self.field, self.state, self.arena))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.field_array.astype(dtype or np.float32)

    def __getstate__(self) -> dict[str, Any]:
        return {"number": self.number, "step": -1, "state": None}


class FieldWindView:
    """The wind of a library field, as a user's sensor expects one."""

    def __init__(self, plume: PlumeView):
        self.plume = plume

    def sample(self, position: Any) -> NDArray[Any]:
        x, y = position
        return np.array(_wind(self.plume.field, self.plume.state, np.array([x, y], float)))


class WindView(_Clock):
    """A library wind beside a user's plume; a step is one second."""

    def __init__(self, number: int, wind: Wind | None = None):
        super().__init__(number)
        self.wind = Constant() if wind is None else wind

    def begin(self) -> Any:
        return self.wind.init(self.key(0))

    def follow(self) -> Any:
        return self.wind.advance(self.key(self.step), self.state, 1.0)

    def sample(self, position: Any) -> NDArray[Any]:
        return np.array(self.wind.velocity(self.state))


@jax.jit
def _init(field: Field, key: Any) -> Any:
    return field.init(key)


@jax.jit
def _advance(field: Field, key: Any, state: Any) -> Any:
    return field.advance(key, state)


@jax.jit
def _smell(field: Field, state: Any, arena: Arena, xy: Any) -> Any:
    return jnp.where(arena.inside(xy), field.concentration(state, xy), 0)


@jax.jit
def _raster(field: Field, state: Any, arena: Arena) -> Any:
    return field.concentration(state, arena.raster())


@jax.jit
def _wind(field: Field, state: Any, xy: Any) -> Any:
    return field.wind(state, xy)


def inside(point: Any, size: GridSize) -> bool:
    return all(math.isfinite(side) and 0 <= side <= last - 1 for side, last in zip(point, size, strict=True))
