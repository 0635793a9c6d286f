"""The components of a search on the host: a user's own, and the library's in the form that a user's sensor asks."""

import copy
import uuid
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.episode import host_key, seed_words, small_seed, step_key
from tropism.envs.plume.nav import FIELD, PlumeNavParams
from tropism.errors import ValidationError
from tropism.plume.fields import Field
from tropism.plume.scene import Arena
from tropism.plume.user_parts import require
from tropism.plume.wind import Constant, Wind

WIND = -3  # a number no step has: its key is for a user's wind


@dataclass(eq=False)
class Episode:
    """All that an episode follows from: lived again, it is the same."""

    seed: int
    params: Any
    before: Any  # copies of the user's sensor, motion and reward as it began; None where they cannot be copied
    actions: list[Any] = field(default_factory=list[Any])


class Parts:
    """The components of one environment: a user's own, and where a part is the library's, what stands for it.

    `sensor`, `motion` and `reward` are None where they are the library's; `plume` and `wind` are always
    objects that a user's sensor can ask. A copy begins where the current episode began, because that is
    where a copied session replays it from: a sensor may remember what nobody tells it to forget.
    A copy is equal to what it is a copy of; else parts are equal if the user's objects are the same or say so.
    """

    def __init__(self, sensor: Any, motion: Any, reward: Any, plume: Any, wind: Any):
        self.sensor: Any = None if sensor is None else require("sensor_model", sensor)
        self.motion: Any = None if motion is None else require("action_model", motion)
        self.reward: Any = None if reward is None else require("reward_fn", reward)
        self.owns_plume = plume is not None
        self.owns_wind = wind is not None and not isinstance(wind, Wind)
        self.plume = require("plume", plume) if self.owns_plume else PlumeView()
        self.wind = require("wind_field", wind) if self.owns_wind else self._air(wind)
        self.looking: set[str] = set()  # what cannot be compiled, because it looks at a user's plume or wind
        self.now = 0
        self.episode: Episode | None = None
        self._origin = uuid.uuid4().hex  # what copies have in common

    def _air(self, wind: Wind | None) -> Any:
        return WindView(wind) if self.owns_plume else FieldWindView(self.plume)

    def begin(self, seed: int, rng: Any, params: PlumeNavParams) -> Episode:
        self.now = 0
        self.episode = Episode(seed, params, self._remembered())
        if hasattr(self.motion, "set_rng"):
            self.motion.set_rng(rng)
        if isinstance(self.plume, PlumeView):
            self.plume.take(params.field, params.arena)
            self.plume.reset(seed)
        elif hasattr(self.plume, "reset"):
            self.plume.reset(small_seed(seed))
        if isinstance(self.wind, WindView):
            self.wind.reset(seed)
        elif hasattr(self.wind, "reset"):
            self.wind.reset(small_seed(host_key(seed, WIND)))
        return self.episode

    def advance(self, step: int) -> None:
        self.now = step
        for part in (self.plume, self.wind):
            if hasattr(part, "advance_to_step"):
                part.advance_to_step(step)

    def _remembered(self) -> Any:
        """What an episode begins with. Plume and wind need no keeping: a reset begins them again."""
        shared = {id(part): part for part in (self.plume, self.wind)}
        try:
            return copy.deepcopy((self.sensor, self.motion, self.reward), shared)
        except TypeError:  # it holds what cannot be copied, such as a file: then nor can the environment
            return None

    def as_before(self, episode: Episode) -> "Parts":
        """Copies of the parts, as they were when an episode began."""
        twin = object.__new__(Parts)
        twin.__dict__ = {**self.__dict__, "episode": episode}
        return copy.deepcopy(twin)

    def __getstate__(self) -> dict[str, Any]:
        kept = {**self.__dict__, "episode": None}
        if self.episode is not None and self.episode.before is not None:
            kept["sensor"], kept["motion"], kept["reward"] = self.episode.before
        return kept

    def _users(self) -> tuple[Any, ...]:
        wind = self.wind.wind if isinstance(self.wind, WindView) else self.wind if self.owns_wind else None
        return self.sensor, self.motion, self.reward, self.plume if self.owns_plume else None, wind

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parts):
            return False
        pairs = zip(self._users(), other._users(), strict=True)
        return self._origin == other._origin or all(ours is its or (ours == its) is True for ours, its in pairs)

    def __hash__(self) -> int:
        return hash(tuple(map(type, self._users())))


class _Clock:
    """Abstract: a library part that is moved along by `reset` and `advance_to_step`. Copies are to be reset."""

    def __init__(self):
        self.step = -1
        self.state: Any = None
        self.words: Any = None  # the seed's

    def begin(self) -> Any:
        raise NotImplementedError

    def follow(self) -> Any:
        raise NotImplementedError

    def reset(self, seed: int) -> None:
        self.words, self.step = seed_words(seed), 0
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
        return _init(self.field, self.words)

    def follow(self) -> Any:
        return _advance(self.field, self.words, self.step, self.state)

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
        return {"step": -1, "state": None, "words": None}


class FieldWindView:
    """The wind of a library field, as a user's sensor expects one."""

    def __init__(self, plume: PlumeView):
        self.plume = plume

    def sample(self, position: Any) -> NDArray[Any]:
        x, y = position
        return np.array(_wind(self.plume.field, self.plume.state, np.array([x, y], float)))


class WindView(_Clock):
    """A library wind beside a user's plume; a step is one second."""

    def __init__(self, wind: Wind | None = None):
        super().__init__()
        self.wind = Constant() if wind is None else wind

    def begin(self) -> Any:
        return _init(self.wind, self.words)

    def follow(self) -> Any:
        return _blow(self.wind, self.words, self.step, self.state)

    def sample(self, position: Any) -> NDArray[Any]:
        return np.array(_velocity(self.wind, self.state))


def _key(words: Any, step: Any) -> Any:
    """The key that the field has in PlumeNav, so that the same seed is the same plume."""
    return random.fold_in(step_key(words, step), FIELD)


@jax.jit
def _init(part: Any, words: Any) -> Any:
    return part.init(_key(words, 0))


@jax.jit
def _advance(field: Field, words: Any, step: Any, state: Any) -> Any:
    return field.advance(_key(words, step), state)


@jax.jit
def _blow(wind: Wind, words: Any, step: Any, state: Any) -> Any:
    return wind.advance(_key(words, step), state, 1.0)


@jax.jit
def _velocity(wind: Wind, state: Any) -> Any:
    return wind.velocity(state)


@jax.jit
def _smell(field: Field, state: Any, arena: Arena, xy: Any) -> Any:
    return jnp.where(arena.inside(xy), field.concentration(state, xy), 0)


@jax.jit
def _raster(field: Field, state: Any, arena: Arena) -> Any:
    return field.concentration(state, arena.raster())


@jax.jit
def _wind(field: Field, state: Any, xy: Any) -> Any:
    return field.wind(state, xy)
