"""The components of a search on the host: the user's, and the library's with the interface of user parts."""

import copy
import uuid
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.compiled.program import host_device
from tropism.core.episode import host_key, seed_words, small_seed, step_key
from tropism.envs.plume.nav import PlumeNavParams, step_duration
from tropism.envs.plume.steps import FIELD
from tropism.errors import ValidationError
from tropism.plume.fields import Field
from tropism.plume.scene import Arena
from tropism.plume.user_parts import require
from tropism.plume.wind import Constant, Wind

WIND = -3  # in place of a step number: selects the key of a user's wind


class PlumeParts:
    """The components of one environment: the user's, and views of the library's.

    `sensor`, `motion` and `reward` are None if they are the library's; `plume` and `wind` are always
    objects that a user's sensor can call. A copy has the state at the start of the current episode, because a
    copied session replays the episode from there, and a sensor's memory need not be reset by an episode.
    A copy is equal to its original; otherwise parts are equal if the user's objects are identical or equal.
    """

    def __init__(self, sensor: Any, motion: Any, reward: Any, plume: Any, wind: Any):
        self.sensor: Any = None if sensor is None else require("sensor_model", sensor)
        self.motion: Any = None if motion is None else require("action_model", motion)
        self.reward: Any = None if reward is None else require("reward_fn", reward)
        self.owns_plume = plume is not None
        self.owns_wind = wind is not None and not isinstance(wind, Wind)
        self.plume = require("plume", plume) if self.owns_plume else PlumeView()
        self.wind = require("wind_field", wind) if self.owns_wind else self._wind_view(wind)
        self.host_only: set[str] = set()  # functions that cannot be compiled, because they use a user's plume or wind
        self.now = 0
        self.latest: Any = None  # the state after the last step; None during a step
        self.initial: Any = None  # `_copy_user_parts()` at the start of the current episode
        self.holds_array = isinstance(getattr(self.plume, "__dict__", {}).get("field_array"), np.ndarray)
        self.array: Any = None  # the last `field_array` of the user's plume that was checked
        self.plume_advances = hasattr(self.plume, "advance_to_step")
        clocked = (self.plume, None if wind is None else self.wind)  # without a wind, it is constant
        self.advancing: list[Any] = [part for part in clocked if hasattr(part, "advance_to_step")]
        self._origin = uuid.uuid4().hex  # shared by copies

    def _wind_view(self, wind: Wind | None) -> Any:
        return WindView(wind) if self.owns_plume else FieldWindView(self.plume)

    @property
    def uses_engine(self) -> bool:
        """Whether agent, plume and wind are the library's, so that one compiled step moves them."""
        return self.motion is None and not self.owns_plume and not self.owns_wind

    def begin_episode(self, seed: int, rng: Any, params: PlumeNavParams) -> None:
        self.now, self.latest = 0, None
        self.initial = self._copy_user_parts()
        if hasattr(self.motion, "set_rng"):
            self.motion.set_rng(rng)
        if isinstance(self.plume, PlumeView):
            self.plume.configure(params.field, params.arena)
            self.plume.reset(seed)
        elif hasattr(self.plume, "reset"):
            self.plume.reset(small_seed(seed))
        if isinstance(self.wind, WindView):
            self.wind.params, self.wind.dt = params, None
            self.wind.reset(seed)
        elif hasattr(self.wind, "reset"):
            self.wind.reset(small_seed(host_key(seed, WIND)))

    def _copy_user_parts(self) -> Any:
        """Copy the user's parts at the start of an episode. Plume and wind are excluded: a reset restores them."""
        shared = {id(part): part for part in (self.plume, self.wind)}
        try:
            return copy.deepcopy((self.sensor, self.motion, self.reward), shared)
        except Exception:  # noqa: BLE001  a user's object, such as a file, may raise anything when it is copied
            return None

    def at_start(self, initial: Any) -> "PlumeParts":
        """Copies of the parts with their state at the start of an episode."""
        twin = object.__new__(PlumeParts)
        twin.__dict__ = {**self.__dict__, "initial": initial}
        return copy.deepcopy(twin)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "latest": None, "initial": None, "array": None}
        if self.initial is not None:
            state["sensor"], state["motion"], state["reward"] = self.initial
        return state

    def user_objects(self) -> tuple[Any, ...]:
        wind = self.wind.wind if isinstance(self.wind, WindView) else self.wind if self.owns_wind else None
        return self.sensor, self.motion, self.reward, self.plume if self.owns_plume else None, wind

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlumeParts):
            return False
        pairs = zip(self.user_objects(), other.user_objects(), strict=True)
        return self._origin == other._origin or all(
            mine is theirs or (mine == theirs) is True for mine, theirs in pairs
        )

    def __hash__(self) -> int:
        return hash(tuple(map(type, self.user_objects())))


class _SteppedPart:
    """Abstract: a library part driven by `reset` and `advance_to_step`. Copies must be reset.

    Its state is computed when it is read."""

    def __init__(self):
        self.step = -1
        self.words: Any = None  # the seed's
        self._state: Any = None
        self._state_step = -1

    def initial_state(self) -> Any:
        raise NotImplementedError

    def next_state(self, state: Any, step: int) -> Any:
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        self.words, self.step, self._state_step = seed_words(seed), 0, -1

    def advance_to_step(self, k: int) -> None:
        self.step = k

    @property
    def state(self) -> Any:
        if self._state_step == self.step:
            return self._state
        with jax.default_device(host_device()):
            if self._state_step < 0:
                self._state, self._state_step = self.initial_state(), 0
            while self._state_step < self.step:
                self._state_step += 1
                self._state = self.next_state(self._state, self._state_step)
        return self._state


class PlumeView(_SteppedPart):
    """A library field with the interface of a user's plume; `configure` sets the params of an episode."""

    _engine: Any = None  # the engine whose state this is, if there is one
    _measure: Any = None  # measures in the state of `_measured`
    _measured: Any = None  # the engine for which `_measure` is compiled

    def configure(self, field: Field, arena: Arena) -> None:
        self.field, self.arena = field, arena
        self._engine = None

    def follow(self, engine: Any, here: Any, concentration: float) -> None:
        """Use the state of an engine, in which the agent is at `here`."""
        if self._measured is not engine:
            self._measured, self._measure = engine, engine.compile(_measure_in_state)
        self._engine, self._here, self._concentration = engine, here, concentration

    @property
    def state(self) -> Any:
        return super().state if self._engine is None else self._engine.state().field

    def initial_state(self) -> Any:
        return _init(self.field, self.words)

    def next_state(self, state: Any, step: int) -> Any:
        return _advance(self.field, self.words, step, state)

    def sample(self, x: Any, y: Any, t: Any = None) -> float:
        if t is not None and t != self.step:
            raise ValidationError("t", t, f"None or the current step, {self.step}")
        if self._engine is not None and (x, y) == self._here:
            return self._concentration
        return float(self.measure(x, y)[0])

    def measure(self, x: Any, y: Any) -> NDArray[Any]:
        """The concentration and the wind, (x, y), at a point."""
        xy = np.array([x, y], float)
        if self._engine is not None:
            return np.asarray(self._measure(xy))
        return np.asarray(_measure(self.field, self.state, self.arena, xy))

    @property
    def field_array(self) -> NDArray[Any]:
        return np.array(_raster(self.field, self.state, self.arena))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.field_array.astype(dtype or np.float32)

    def __getstate__(self) -> dict[str, Any]:
        return {"step": -1, "words": None, "_state": None, "_state_step": -1}


class FieldWindView:
    """The wind of a library field with the interface of a user's wind."""

    def __init__(self, plume: PlumeView):
        self.plume = plume

    def sample(self, position: Any) -> NDArray[Any]:
        x, y = position
        return self.plume.measure(x, y)[1:].copy()


class WindView(_SteppedPart):
    """A library wind for a user's plume; a step takes as long as the motion says, or one second."""

    def __init__(self, wind: Wind | None = None):
        super().__init__()
        self.wind = Constant() if wind is None else wind
        self.params: Any = None
        self.dt: Any = None  # computed when it is needed

    def initial_state(self) -> Any:
        return _init(self.wind, self.words)

    def next_state(self, state: Any, step: int) -> Any:
        if self.dt is None:
            seconds = step_duration(self.params.field, self.params.motion, self.params.sensor)
            self.dt = 1.0 if seconds is None else seconds
        return _advance_wind(self.wind, self.words, step, state, self.dt)

    def sample(self, position: Any) -> NDArray[Any]:
        return np.array(_velocity(self.wind, self.state))


def _key(words: Any, step: Any) -> Any:
    """The field's key in PlumeNav, so that the same seed gives the same plume."""
    return random.fold_in(step_key(words, step), FIELD)


@jax.jit
def _init(part: Any, words: Any) -> Any:
    return part.init(_key(words, 0))


@jax.jit
def _advance(field: Field, words: Any, step: Any, state: Any) -> Any:
    return field.advance(_key(words, step), state)


@jax.jit
def _advance_wind(wind: Wind, words: Any, step: Any, state: Any, dt: Any) -> Any:
    return wind.advance(_key(words, step), state, dt)


@jax.jit
def _velocity(wind: Wind, state: Any) -> Any:
    return wind.velocity(state)


@jax.jit
def _measure(field: Field, state: Any, arena: Arena, xy: Any) -> Any:
    concentration = jnp.where(arena.contains(xy), field.concentration(state, xy), 0)
    return jnp.append(concentration, field.wind(state, xy))


def _measure_in_state(state: Any, params: PlumeNavParams, xy: Any) -> Any:
    return _measure(params.field, state.field, params.arena, xy)


@jax.jit
def _raster(field: Field, state: Any, arena: Arena) -> Any:
    return field.concentration(state, arena.raster())
