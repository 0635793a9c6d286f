"""Sensors of odour and wind; they can be combined."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float

from tropism.core.spaces import Box, Dict, Space
from tropism.core.spaces.space import is_traced
from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.scene import Scene, direction


class Sensor(eqx.Module):
    """Abstract. A sensor may have memory: `sense` takes it and returns the next one with the observation."""

    @abstractmethod
    def space(self, shape: tuple[int, int]) -> Space:
        """The space of observations in an arena with a raster of `shape` (height, width)."""

    def start(self, shape: tuple[int, int]) -> Any:
        """The memory at the start of an episode."""
        return ()

    @abstractmethod
    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        """`(observation, memory)`."""

    def words(self) -> tuple[str, ...]:
        """The names of the entries of a vector observation."""
        return ()

    def step_durations(self) -> tuple[Any, ...]:
        """The seconds per step of the environment that this sensor, or parts of it, depend on."""
        return ()


class Concentration(Sensor):
    """The concentration at the agent, clipped at `limit`."""

    limit: Any = 1.0

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, self.limit, (1,))

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        return _clip(scene.smell(scene.agent.xy)[None], self.limit), memory

    def words(self) -> tuple[str, ...]:
        return ("smell",)


class Odour(Sensor):
    """1 if the concentration is at least `threshold`, else 0."""

    threshold: Any = 0.1

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, 1, (1,))

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        return (scene.smell(scene.agent.xy) >= self.threshold).astype(jnp.float32)[None], memory

    def words(self) -> tuple[str, ...]:
        return ("odour",)


class Hits(Sensor):
    """The number of molecules that hit the sensor in one step: Poisson with mean `rate` × concentration, at most
    `limit`."""

    rate: Any = 5.0
    limit: Any = 255.0

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, self.limit, (1,))

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        mean = self.rate * scene.smell(scene.agent.xy)
        return _clip(random.poisson(key, mean).astype(jnp.float32)[None], self.limit), memory

    def words(self) -> tuple[str, ...]:
        return ("hits",)


class Antennae(Sensor):
    """Concentrations at points around the head; angles are relative to the heading, positive to the left.

    The default is a pair: the left antenna first, then the right one.
    """

    angles: tuple[float, ...] = (45.0, -45.0)  # degrees
    reach: Any = 1.0  # length units
    limit: Any = 1.0

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, self.limit, (len(self.angles),))

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        angles = scene.agent.heading + jnp.deg2rad(jnp.stack(jnp.asarray(self.angles)))
        return _clip(scene.smell(scene.agent.xy + self.reach * direction(angles)), self.limit), memory

    def words(self) -> tuple[str, ...]:
        return tuple(f"smell at {angle:g}°" for angle in self.angles)


def array_of(count: int, reach: float = 1.0, limit: float = 1.0) -> Antennae:
    """`count` antennae evenly around the agent, the first straight ahead, then to the left."""
    checks.require_count(count=count)
    return Antennae(tuple(360.0 * i / count for i in range(count)), reach, limit)


class WindSense(Sensor):
    """The wind at the agent: (x, y), or (forward, left) if `egocentric`; `apparent` is relative to the moving agent."""

    egocentric: bool = eqx.field(static=True, default=False)
    apparent: bool = eqx.field(static=True, default=False)
    dt: Any = 1.0  # seconds per step, for the agent's velocity
    limit: Any = np.inf

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(-self.limit, self.limit, (2,))

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        wind = scene.wind(scene.agent.xy)
        if self.apparent:
            wind = wind - scene.agent.velocity / self.dt
        if self.egocentric:
            forward = direction(scene.agent.heading)
            wind = jnp.stack([wind @ forward, forward[0] * wind[1] - forward[1] * wind[0]])
        return jnp.clip(wind, -self.limit, self.limit).astype(jnp.float32), memory

    def words(self) -> tuple[str, ...]:
        return ("wind ahead", "wind left") if self.egocentric else ("wind x", "wind y")

    def step_durations(self) -> tuple[Any, ...]:
        return (self.dt,) if self.apparent else ()


class FlyerWind(WindSense):
    """The wind minus the velocity of a flyer relative to the air, (forward, left), as in the released code of Singh et
    al. 2023. The wind carries the flyer, so that it would feel minus its own velocity: this is what theirs observes."""

    egocentric: bool = eqx.field(static=True, default=True)
    apparent: bool = eqx.field(static=True, default=True)
    dt: Any = 0.04

    def start(self, shape: tuple[int, int]) -> Any:
        """The velocity by which the wind carried the flyer in the last step."""
        return jnp.zeros(2, jnp.result_type(float))

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        wind = scene.wind(scene.agent.xy)
        flown = replace(
            scene.agent,
            moved_x=scene.agent.moved_x - memory[0] * self.dt,
            moved_y=scene.agent.moved_y - memory[1] * self.dt,
        )
        obs, _ = super().sense(key, (), replace(scene, agent=flown))
        return obs, wind.astype(memory.dtype)


class SinceWhiff(Sensor):
    """Steps since the concentration was last at least `threshold`; at most `limit`, also before the first whiff."""

    threshold: Any = 0.1
    limit: Any = 1000.0

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, self.limit, (1,))

    def start(self, shape: tuple[int, int]) -> Any:
        return jnp.float32(self.limit)

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        whiff = scene.smell(scene.agent.xy) >= self.threshold
        since = jnp.where(whiff, 0, jnp.minimum(memory + 1, self.limit)).astype(jnp.float32)
        return since[None], since

    def words(self) -> tuple[str, ...]:
        return ("since whiff",)


class WhiffRate(Sensor):
    """The rate of whiff onsets, averaged exponentially over `memory_steps`."""

    threshold: Any = 0.1
    memory_steps: Any = 20.0

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, 1, (1,))

    def start(self, shape: tuple[int, int]) -> Any:
        return jnp.bool_(False), jnp.float32(0)

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        had_whiff, rate = memory
        whiff = scene.smell(scene.agent.xy) >= self.threshold
        rate = (rate + ((whiff & ~had_whiff) - rate) / self.memory_steps).astype(jnp.float32)
        return rate[None], (whiff, rate)

    def words(self) -> tuple[str, ...]:
        return ("whiff rate",)


class OdourMemory(Sensor):
    """The mean concentration and the intermittency, the share of steps with at least `threshold`, over the last
    `window` steps, or fewer at the start of an episode."""

    threshold: Any = 0.1
    limit: Any = 1.0
    window: int = eqx.field(static=True, default=20)

    def __check_init__(self) -> None:
        checks.require_count(window=self.window)

    def space(self, shape: tuple[int, int]) -> Box:
        high = jnp.stack([jnp.asarray(self.limit, float), 1.0]) if is_traced(self.limit) else np.array([self.limit, 1])
        return Box(0, high, (2,))

    def start(self, shape: tuple[int, int]) -> Any:
        return jnp.zeros((), jnp.int32), jnp.zeros(self.window, jnp.float32)

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        count, past = memory
        past = past.at[count % self.window].set(_clip(scene.smell(scene.agent.xy), self.limit))
        count = count + 1
        seen = jnp.arange(self.window) < count
        num = jnp.minimum(count, self.window)
        present = jnp.where(seen, past >= self.threshold, False)
        return jnp.stack([past.sum() / num, present.sum() / num]).astype(jnp.float32), (count, past)

    def words(self) -> tuple[str, ...]:
        return ("mean smell", "intermittency")


class Position(Sensor):
    """The position of the agent, as (column, row) of the raster; on a grid that begins at 0 that is (x, y)."""

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(np.zeros(2), np.array([shape[1] - 1, shape[0] - 1]), (2,), np.int32)

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        return scene.arena.cell(scene.agent.xy), memory

    def words(self) -> tuple[str, ...]:
        return ("column", "row")


class SourcePosition(Position):
    """The position of the source, as (column, row)."""

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        return scene.arena.cell(scene.source), memory

    def words(self) -> tuple[str, ...]:
        return ("source column", "source row")


class FullField(Sensor):
    """The whole concentration field, (height, width); row = y."""

    limit: Any = 1.0

    def space(self, shape: tuple[int, int]) -> Box:
        return Box(0, self.limit, shape)

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        return _clip(scene.smell(scene.arena.raster()), self.limit), memory


class Concat(Sensor):
    """Several sensors as one vector."""

    parts: tuple[Sensor, ...]

    def space(self, shape: tuple[int, int]) -> Box:
        spaces = [part.space(shape) for part in self.parts]
        for space in spaces:
            if not isinstance(space, Box) or len(space.shape) != 1:
                raise ValidationError("parts", space, "sensors whose observation is a vector")
        bounds: Any = [(space.low, space.high) for space in spaces if isinstance(space, Box)]
        join = jnp.concatenate if is_traced(*jax.tree.leaves(bounds)) else np.concatenate
        return Box(join([low for low, _ in bounds]), join([high for _, high in bounds]))

    def start(self, shape: tuple[int, int]) -> Any:
        return tuple(part.start(shape) for part in self.parts)

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        readings = [part.sense(random.fold_in(key, i), memory[i], scene) for i, part in enumerate(self.parts)]
        return jnp.concatenate([obs for obs, _ in readings]).astype(jnp.float32), tuple(
            next_memory for _, next_memory in readings
        )

    def words(self) -> tuple[str, ...]:
        return tuple(word for part in self.parts for word in part.words())

    def step_durations(self) -> tuple[Any, ...]:
        return tuple(seconds for part in self.parts for seconds in part.step_durations())


class DictSensor(Sensor):
    """Several sensors as a Dict; constructed by `dict_sensor(left=…, wind=…)`."""

    names: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[Sensor, ...]

    def space(self, shape: tuple[int, int]) -> Dict:
        return Dict({name: part.space(shape) for name, part in zip(self.names, self.parts, strict=True)})

    def start(self, shape: tuple[int, int]) -> Any:
        return tuple(part.start(shape) for part in self.parts)

    def sense(self, key: Any, memory: Any, scene: Scene) -> tuple[Any, Any]:
        readings = [part.sense(random.fold_in(key, i), memory[i], scene) for i, part in enumerate(self.parts)]
        obs = {name: obs for name, (obs, _) in zip(self.names, readings, strict=True)}
        return obs, tuple(next_memory for _, next_memory in readings)

    def step_durations(self) -> tuple[Any, ...]:
        return tuple(seconds for part in self.parts for seconds in part.step_durations())


def dict_sensor(**parts: Sensor) -> DictSensor:
    return DictSensor(tuple(parts), tuple(parts.values()))


def _clip(values: Float[Array, "..."], limit: Any) -> Float[Array, "..."]:
    return jnp.clip(values, 0, limit).astype(jnp.float32)
