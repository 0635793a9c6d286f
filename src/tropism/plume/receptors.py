"""Wrappers of any sensor: noise, adaptation, saturation, history."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float

from tropism.core.spaces import Box
from tropism.errors import ValidationError
from tropism.plume.scene import Scene
from tropism.plume.sensors import Sensor


class Receptor(Sensor):
    """Abstract: maps the numbers of another sensor. What it returns stays within that sensor's bounds."""

    sensor: eqx.AbstractVar[Sensor]

    def space(self, shape: tuple[int, int]) -> Box:
        space = self.sensor.space(shape)
        if not isinstance(space, Box):
            raise ValidationError("sensor", self.sensor, "a sensor whose observation is a Box")
        return space

    def start(self, shape: tuple[int, int]) -> Any:
        return self.sensor.start(shape), self.begin(shape)

    def begin(self, shape: tuple[int, int]) -> Any:
        """What the wrapper itself remembers at the start."""
        return ()

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        inner_key, own_key = random.split(key)
        values, inner = self.sensor.sense(inner_key, memory[0], scene)
        values, own = self.respond(own_key, memory[1], values)
        space = self.space(scene.arena.shape)
        return jnp.clip(values, space.low, space.high).astype(space.dtype), (inner, own)

    def respond(self, key: Any, memory: Any, values: Float[Array, "..."]) -> tuple[Any, Any]:
        raise NotImplementedError


class Noisy(Receptor):
    """Adds Gaussian noise."""

    sensor: Sensor
    deviation: Any = 0.05

    def respond(self, key: Any, memory: Any, values: Float[Array, "..."]) -> tuple[Any, Any]:
        return values + self.deviation * random.normal(key, values.shape, values.dtype), memory


class Saturating(Receptor):
    """Michaelis–Menten: half of the limit at `half`."""

    sensor: Sensor
    half: Any = 0.1

    def respond(self, key: Any, memory: Any, values: Float[Array, "..."]) -> tuple[Any, Any]:
        return values / (values + self.half), memory


class Adapting(Receptor):
    """Weber-like adaptation: the signal over itself plus a background that follows it with `time_constant` steps."""

    sensor: Sensor
    time_constant: Any = 50.0
    half: Any = 0.01

    def begin(self, shape: tuple[int, int]) -> Any:
        return jnp.zeros(self.sensor.space(shape).shape or ())

    def respond(self, key: Any, memory: Any, values: Float[Array, "..."]) -> tuple[Any, Any]:
        background = memory + (values - memory) / self.time_constant
        return values / (values + self.half + background), background


class History(Receptor):
    """The last `length` observations, oldest first, along a new leading axis; zeros before the first."""

    sensor: Sensor
    length: int = eqx.field(static=True, default=4)

    def __check_init__(self) -> None:
        if not isinstance(self.length, int) or self.length < 1:
            raise ValidationError("length", self.length, "a whole number of at least 1")

    def space(self, shape: tuple[int, int]) -> Box:
        one = super().space(shape)
        full = (self.length, *one.shape)
        return Box(np.minimum(np.broadcast_to(one.low, full), 0), np.broadcast_to(one.high, full), full, one.dtype)

    def begin(self, shape: tuple[int, int]) -> Any:
        space = self.space(shape)
        return jnp.zeros(space.shape, space.dtype)

    def respond(self, key: Any, memory: Any, values: Float[Array, "..."]) -> tuple[Any, Any]:
        frames = jnp.concatenate([memory[1:], values[None]])
        return frames, frames
