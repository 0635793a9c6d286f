"""Sources that move, that pulse, and several of them: wrappers of fields whose odour is released at a source."""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields.field import Field
from tropism.plume.fields.filaments import Filaments
from tropism.plume.fields.gaussian import Gaussian
from tropism.plume.fields.puffs import Puffs, PuffsState

Releasing = Gaussian | Puffs | Filaments


class SourceState(eqx.Module):
    inner: Any
    start: Float[Array, ""]  # s, the time at the start of the episode
    steps: Int[Array, ""]


class SourceField(Field):
    """Abstract: a `Gaussian`, `Puffs` or `Filaments` whose source changes with time.

    Puffs that were released stay where the wind carried them, and an episode starts in a developed plume. A Gaussian
    has no history: it follows its source at once.
    """

    wind_moves_odour: ClassVar[bool] = True
    num_sources: ClassVar[int] = 1

    inner: eqx.AbstractVar[Any]

    def __check_init__(self) -> None:
        if not isinstance(self.inner, Releasing):
            raise ValidationError("inner", self.inner, "a Gaussian, Puffs or Filaments")
        if isinstance(self.inner, Puffs):
            checks.require_positive(growth=self.inner.growth)  # the age of a puff is read from its size

    if TYPE_CHECKING:
        source: Any = eqx.field(init=False)  # not an argument
    else:

        @property
        def source(self) -> Any:
            return self.inner.source

    def with_source(self, source: Any) -> "SourceField":
        return replace(self, inner=self.inner.with_source(source))  # pyright: ignore[reportCallIssue]

    def with_wind(self, wind: Any) -> "SourceField":
        return replace(self, inner=self.inner.with_wind(wind))  # pyright: ignore[reportCallIssue]

    @property
    def step_duration(self) -> Any:
        return self.inner.dt if isinstance(self.inner, Gaussian) else self.inner.step_duration

    @abstractmethod
    def release(self, time: Any, number: Any) -> tuple[tuple[Any, Any], Any]:
        """The position of the source of release `number` at a time, and whether it releases odour then."""

    def start_time(self, key: Any) -> Any:
        """The time of the sources at the start of an episode."""
        return jnp.zeros(())

    def init(self, key: Any) -> SourceState:
        inner_key, time_key, warm_key = random.split(key, 3)
        start, zero = jnp.asarray(self.start_time(time_key), float), jnp.zeros((), jnp.int32)
        if isinstance(self.inner, Filaments):
            return SourceState(self._warm_up(inner_key, warm_key, start), start, zero)
        inner = self._all_sources().init(inner_key)
        return SourceState(self._develop(inner, start) if isinstance(self.inner, Puffs) else inner, start, zero)

    def advance(self, key: Any, state: SourceState) -> SourceState:
        inner = self._at(self._time(state), state.steps).advance(key, state.inner)
        return SourceState(inner, state.start, state.steps + 1)

    def concentration(self, state: SourceState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        if not isinstance(self.inner, Gaussian):
            return self.inner.concentration(state.inner, xy)
        total = jnp.zeros(xy.shape[:-1])
        for number in range(self.num_sources):
            place, releases = self.release(self._time(state), number)
            total += releases * self.inner.with_source(place).concentration(state.inner, xy)
        return total

    def wind(self, state: SourceState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return self.inner.wind(state.inner, xy)

    def puffs(self, state: SourceState) -> tuple[Any, Any, Any]:
        return self.inner.puffs(state.inner)

    def source_at(self, state: SourceState) -> Any:
        return self.release(self._time(state), 0)[0]

    def check_arena(self, low: Any, high: Any) -> None:
        self._all_sources().check_arena(low, high)

    def _time(self, state: SourceState) -> Any:
        return state.start + state.steps * self.step_duration

    def _all_sources(self) -> Any:
        """The inner field with the rate of all sources."""
        inner = self.inner
        return inner if isinstance(inner, Gaussian) else replace(inner, rate=inner.rate * self.num_sources)

    def _at(self, time: Any, step: Any) -> Any:
        """The inner field with the source and the rate of a step; several sources release in turn."""
        place, releases = self.release(time, step)
        inner = self._all_sources().with_source(place)
        return inner if isinstance(inner, Gaussian) else replace(inner, rate=inner.rate * releases)

    def _develop(self, state: PuffsState, start: Any) -> PuffsState:
        """Move puffs to where they would be if each had been released at its time; the wind is uniform."""
        age = (state.radius - self.inner.radius) / self.inner.growth
        (x, y), releases = self.release(start - age, jnp.arange(state.x.size))
        alive = (state.radius > 0) & releases
        shift_x, shift_y = x - self.inner.source[0], y - self.inner.source[1]
        radius = jnp.where(alive, state.radius, 0)
        return replace(
            state,
            x=jnp.where(alive, state.x + shift_x, 0),
            y=jnp.where(alive, state.y + shift_y, 0),
            radius=self.inner.trim(state.x + shift_x, state.y + shift_y, radius),
        )

    def _warm_up(self, key: Any, warm_key: Any, start: Any) -> Any:
        """Simulate the time before the episode."""
        dt, steps = self.inner.warmup_dt, self.inner.warmup

        def step(i: Any, state: Any) -> Any:
            field = replace(self._at(start - (steps - i) * dt, i), dt=dt)
            return field.advance(random.fold_in(warm_key, i), state)

        return jax.lax.fori_loop(0, steps, step, replace(self.inner, warmup=0).init(key))


class MovingSource(SourceField):
    """Moves with a constant velocity and sways: source + velocity · t + sway · sin(2π t / period). The goal moves
    along. An episode starts at t = 0, or at a random time of a period if `shuffle`."""

    inner: Any
    velocity: Any = (0.0, 0.0)  # length units/s
    sway: Any = (0.0, 0.0)  # length units, amplitude
    period: ArrayLike = 10.0  # s
    shuffle: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        checks.require_point(velocity=self.velocity, sway=self.sway)
        checks.require_positive(period=self.period)

    def start_time(self, key: Any) -> Any:
        return self.period * random.uniform(key) if self.shuffle else jnp.zeros(())

    def release(self, time: Any, number: Any) -> tuple[tuple[Any, Any], Any]:
        swing = jnp.sin(2 * jnp.pi * time / self.period)
        x, y = (self.inner.source[i] + self.velocity[i] * time + self.sway[i] * swing for i in (0, 1))
        return (x, y), True


class PulsedSource(SourceField):
    """Releases odour in the first `duty` of every `period`; an episode starts at a random time of a period."""

    inner: Any
    period: ArrayLike = 2.0  # s
    duty: ArrayLike = 0.5

    def __check_init__(self) -> None:
        checks.require_positive(period=self.period)
        checks.require_fraction(duty=self.duty)

    def start_time(self, key: Any) -> Any:
        return self.period * random.uniform(key)

    def release(self, time: Any, number: Any) -> tuple[tuple[Any, Any], Any]:
        return self.inner.source, jnp.mod(time, self.period) < self.duty * self.period


class SeveralSources(SourceField):
    """Further sources at `others`, each as strong as the inner field's, which is the goal; all are in one wind."""

    inner: Any
    others: tuple[Any, ...]

    def __check_init__(self) -> None:
        for other in self.others:
            checks.require_point(others=other)

    @property
    def num_sources(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 + len(self.others)

    def release(self, time: Any, number: Any) -> tuple[tuple[Any, Any], Any]:
        places = jnp.stack([jnp.stack([jnp.asarray(side, float) for side in at]) for at in self._places])
        place = places[jnp.asarray(number) % self.num_sources]
        return (place[..., 0], place[..., 1]), True

    @property
    def _places(self) -> tuple[Any, ...]:
        return self.inner.source, *self.others
