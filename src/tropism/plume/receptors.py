"""Wrappers of any sensor: noise, adaptation, saturation, history."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from tropism.core.spaces import Box
from tropism.core.spaces.space import is_traced
from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.scene import Scene
from tropism.plume.sensors import Sensor


class Receptor(Sensor):
    """Abstract: transforms the values of another sensor; results are clipped to its space, by default that sensor's."""

    sensor: eqx.AbstractVar[Sensor]

    def space(self, shape: tuple[int, int]) -> Box:
        space = self.sensor.space(shape)
        if not isinstance(space, Box):
            raise ValidationError("sensor", self.sensor, "a sensor whose observation is a Box")
        return space

    def start(self, shape: tuple[int, int]) -> Any:
        return self.sensor.start(shape), self.begin(shape)

    def begin(self, shape: tuple[int, int]) -> Any:
        """The wrapper's own memory at the start of an episode."""
        return ()

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        inner_key, own_key = random.split(key)
        values, inner = self.sensor.sense(inner_key, memory[0], scene)
        values, own = self.respond(own_key, memory[1], values)
        space = self.space(scene.arena.shape)
        return jnp.clip(values, space.low, space.high).astype(space.dtype), (inner, own)

    def words(self) -> tuple[str, ...]:
        return self.sensor.words()

    def step_durations(self) -> tuple[Any, ...]:
        return self.sensor.step_durations()

    @abstractmethod
    def respond(self, key: Any, memory: Any, values: Array) -> tuple[Any, Any]:
        """`(values, memory)`: the transformed values and the wrapper's next memory."""


class Noisy(Receptor):
    """Adds Gaussian noise."""

    sensor: Sensor
    deviation: Any = 0.05

    def __check_init__(self) -> None:
        checks.require_non_negative(deviation=self.deviation)

    def respond(self, key: Any, memory: Any, values: Array) -> tuple[Any, Any]:
        return values + self.deviation * random.normal(key, values.shape, jnp.float32), memory


class Saturating(Receptor):
    """Michaelis–Menten saturation: from 0 to 1, ½ at `half`."""

    sensor: Sensor
    half: Any = 0.1

    def __check_init__(self) -> None:
        checks.require_positive(half=self.half)

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, 1, super().space(shape).shape)

    def respond(self, key: Any, memory: Any, values: Array) -> tuple[Any, Any]:
        values = jnp.maximum(values, 0)
        return values / (values + self.half), memory


class Threshold(Receptor):
    """Values below `floor` are not detected: 0."""

    sensor: Sensor
    floor: Any = 1e-4

    def __check_init__(self) -> None:
        checks.require_non_negative(floor=self.floor)

    def respond(self, key: Any, memory: Any, values: Array) -> tuple[Any, Any]:
        return jnp.where(values < self.floor, 0, values), memory


class Adapting(Receptor):
    """Weber-like adaptation: signal / (signal + `half` + background); the background follows with `time_constant`."""

    sensor: Sensor
    time_constant: Any = 50.0
    half: Any = 0.01

    def __check_init__(self) -> None:
        checks.require_positive(time_constant=self.time_constant, half=self.half)

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, 1, super().space(shape).shape)

    def begin(self, shape: tuple[int, int]) -> Any:
        return jnp.zeros(self.space(shape).shape, jnp.float32)

    def respond(self, key: Any, memory: Any, values: Array) -> tuple[Any, Any]:
        values = jnp.maximum(values, 0)
        background = (memory + (values - memory) / self.time_constant).astype(jnp.float32)
        return values / (values + self.half + background), background


class History(Receptor):
    """The last `length` observations, oldest first, along a new leading axis; zeros before the first."""

    sensor: Sensor
    length: int = eqx.field(static=True, default=4)

    def __check_init__(self) -> None:
        checks.require_count(length=self.length)

    def space(self, shape: tuple[int, int]) -> Box:
        one = super().space(shape)
        full = (self.length, *one.shape)
        xp = jnp if is_traced(one.low, one.high) else np
        low, high = xp.minimum(one.low, 0), xp.maximum(one.high, 0)
        return Box(xp.broadcast_to(low, full), xp.broadcast_to(high, full), full, one.dtype)

    def begin(self, shape: tuple[int, int]) -> Any:
        space = self.space(shape)
        return jnp.zeros(space.shape, space.dtype)

    def respond(self, key: Any, memory: Any, values: Array) -> tuple[Any, Any]:
        frames = jnp.concatenate([memory[1:], values[None]])
        return frames, frames
