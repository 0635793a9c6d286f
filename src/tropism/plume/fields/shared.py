"""One realisation of a plume, simulated once and shared by any number of agents."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int

from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields.field import Field, simulate


class Shared(Field):
    """`inner` in each of `states` in turn; the last one stays.

    The state is the index of the current one. An episode begins at one of the first `num_starts`, at random; with at
    most `len(states) - num_starts` steps it does not reach the end.
    """

    wind_moves_odour: ClassVar[bool] = True

    source: Any  # if it differs from the inner field's, the whole plume is translated
    inner: Field
    states: Any  # those of `inner`, stacked
    num_frames: int = eqx.field(static=True)
    first: ArrayLike = 0  # index of the first of the states in which an episode can begin
    num_starts: ArrayLike = 1

    @property
    def step_duration(self) -> Any:
        return self.inner.step_duration

    def init(self, key: Any) -> Int[Array, ""]:
        return random.randint(key, (), self.first, self.first + self.num_starts)

    def advance(self, key: Any, state: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.minimum(state + 1, self.num_frames - 1)

    def concentration(self, state: Int[Array, ""], xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        return self.inner.concentration(self.inner_state(state), self._inner_point(xy))

    def raster(
        self, state: Int[Array, ""], x: Float[Array, " width"], y: Float[Array, " height"]
    ) -> Float[Array, "height width"]:
        shift = jnp.asarray(self.source) - jnp.asarray(self.inner.source)
        return self.inner.raster(self.inner_state(state), x - shift[0], y - shift[1])

    def wind(self, state: Int[Array, ""], xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return self.inner.wind(self.inner_state(state), self._inner_point(xy))

    def inner_state(self, state: Int[Array, ""]) -> Any:
        """The state of the inner field."""
        return jax.tree.map(lambda stack: stack[state], self.states)

    def puffs(self, state: Int[Array, ""]) -> tuple[Any, Any, Any]:
        x, y, alive = self.inner.puffs(self.inner_state(state))
        shift = jnp.asarray(self.source) - jnp.asarray(self.inner.source)
        return x + shift[0], y + shift[1], alive

    def source_at(self, state: Int[Array, ""]) -> Any:
        x, y = self.inner.source_at(self.inner_state(state))
        return x + self.source[0] - self.inner.source[0], y + self.source[1] - self.inner.source[1]

    def _inner_point(self, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return xy - (jnp.asarray(self.source) - jnp.asarray(self.inner.source))


def share(field: Field, key: Any, num_frames: int, *, num_starts: int = 1) -> Shared:
    """Simulate `num_frames` steps of a field; episodes begin at one of the first `num_starts`."""
    checks.require_count(num_frames=num_frames, num_starts=num_starts)
    if num_starts > num_frames:
        raise ValidationError("num_starts", num_starts, f"at most num_frames, {num_frames}")
    return Shared(field.source, field, _simulate(field, key, num_frames), num_frames, 0, num_starts)


@eqx.filter_jit
def _simulate(field: Field, key: Any, num_frames: int) -> Any:
    return simulate(field, random.split(key), num_frames, lambda state: state)
