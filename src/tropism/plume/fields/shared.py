"""One realisation of a plume, simulated once and shared by any number of agents."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Float, Int

from tropism.plume import checks
from tropism.plume.fields.field import Field


class Shared(Field):
    """`inner` in each of `states` in turn, then again from the first, where the plume is discontinuous.

    The state is the index of the current one. An episode begins at a random index, or at 0 if `offset` is False.
    """

    wind_moves_odour: ClassVar[bool] = True

    source: Any  # if it differs from the inner field's, the whole plume is translated
    inner: Field
    states: Any  # those of `inner`, stacked
    num_frames: int = eqx.field(static=True)
    offset: bool = eqx.field(static=True, default=True)

    def init(self, key: Any) -> Int[Array, ""]:
        return random.randint(key, (), 0, self.num_frames if self.offset else 1)

    def advance(self, key: Any, state: Int[Array, ""]) -> Int[Array, ""]:
        return (state + 1) % self.num_frames

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

    def _inner_point(self, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return xy - (jnp.asarray(self.source) - jnp.asarray(self.inner.source))


def share(field: Field, key: Any, num_frames: int, *, offset: bool = True) -> Shared:
    """Simulate `num_frames` steps of a field."""
    checks.require_count(num_frames=num_frames)
    return Shared(field.source, field, _simulate(field, key, num_frames), num_frames, offset)


@eqx.filter_jit
def _simulate(field: Field, key: Any, num_frames: int) -> Any:
    start_key, steps_key = random.split(key)

    def step_field(state: Any, step_key: Any) -> tuple[Any, Any]:
        return field.advance(step_key, state), state

    return jax.lax.scan(step_field, field.init(start_key), random.split(steps_key, num_frames))[1]
