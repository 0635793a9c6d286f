"""Non-finite numbers and observations outside their space: detected in the compiled update, reported by the host."""

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool

from tropism.core.spaces import Box, Space
from tropism.core.spaces.composite import leaf_values
from tropism.core.spaces.space import is_traced
from tropism.train.algorithm import Config
from tropism.train.observations import is_real

NO_FAULT = 2**31 - 1  # key of an update without a fault
OUTSIDE_SPACE = 2**30  # added to the key of a finite observation that is not in its space


class Fault(NamedTuple):
    """The first fault of an update; non-finite numbers take precedence over observations outside their space.

    `key` is twice the index of the observation, plus 1 if it is the result of a step and 0 if it precedes one.
    Indices are row-major: 0 to num_envs - 1 precede the first step, the next num_envs follow it, and so on.
    """

    key: Any
    obs: Any
    reward: Any  # of the step that led to the observation

    @classmethod
    def none(cls) -> "Fault":
        return cls(jnp.int32(NO_FAULT), None, None)


def find_fault(space: Space, obs: Any, next_obs: Any, reward: Any) -> Fault:
    """The first fault in arrays of shape (time, envs, …); uses one reduction, because each takes time to compile."""
    numbers = np.arange(reward.size, dtype=np.int32).reshape(reward.shape)
    keys = np.stack([2 * numbers, 2 * (numbers + reward.shape[1]) + 1])
    non_finite = jnp.stack([jnp.zeros_like(reward, bool), ~jnp.isfinite(reward)])
    if _holds_all_bytes(space) and isinstance(obs, jax.Array):  # any uint8 value is valid: check the shape only
        fits = obs.shape[2:] == space.shape and obs.dtype == space.dtype
        key = jnp.min(jnp.where(non_finite, keys, NO_FAULT if fits else keys + OUTSIDE_SPACE))
        return Fault(key, obs[0, 0], _pick(reward, _index(key, reward) - reward.size))
    both = jax.tree.map(lambda before, after: jnp.stack([before, after]), obs, next_obs)
    inside = jax.vmap(jax.vmap(jax.vmap(space.contains)))(both)
    key = jnp.min(jnp.where(non_finite | _non_finite(both), keys, jnp.where(inside, NO_FAULT, keys + OUTSIDE_SPACE)))
    index = _index(key, reward)
    return Fault(key, jax.tree.map(lambda leaf: _pick(leaf, index, 3), both), _pick(reward, index - reward.size))


def _index(key: Any, reward: Any) -> Any:
    """The index of a key's observation in the concatenation of those before and those after the steps."""
    return (key % OUTSIDE_SPACE) // 2 + (key % 2) * (reward.size - reward.shape[1])


def _pick(values: Any, index: Any, axes: int = 2) -> Any:
    """One value of an array whose leading axes are flattened; the index is clamped."""
    return lax.dynamic_index_in_dim(values.reshape(-1, *values.shape[axes:]), index, keepdims=False)


def _non_finite(both: Any) -> Bool[Array, "2 time envs"]:
    leaves = jax.tree.leaves(both)
    masks = [~jnp.isfinite(leaf).all(range(3, leaf.ndim)) for leaf in leaves if is_real(leaf)]
    return reduce(jnp.logical_or, masks, jnp.zeros(leaves[0].shape[:3], bool))


def _holds_all_bytes(space: Space) -> bool:
    if not isinstance(space, Box) or space.dtype != np.uint8 or is_traced(space.low, space.high):
        return False
    return not np.any(space.low) and bool(np.all(space.high == 255))


class FaultDescription(NamedTuple):
    """The faulty quantity, its value, and a message."""

    quantity: str
    value: Any
    message: str


class Chunk(NamedTuple):
    """Faults and losses of consecutive updates, (agents, updates, …), after `done` earlier ones."""

    config: Config
    done: int
    fault: Fault
    loss: Any

    def first_non_finite(self) -> FaultDescription | None:
        """The first reward, observation or loss that is NaN or infinite."""
        keys = np.where(self.fault.key < OUTSIDE_SPACE, self.fault.key, NO_FAULT)
        last = 2 * (self.config.batch + self.config.num_envs)  # a loss follows all observations
        keys = np.minimum(keys, np.where(np.isfinite(self.loss), NO_FAULT, last))
        agent, update = _first_fault(keys)
        key = int(keys[agent, update])
        if key == NO_FAULT:
            return None
        if key == last:
            place = self._location((self.done + update + 1) * self.config.batch, agent)
            return _describe_non_finite(place, loss=self.loss[agent, update])
        reward = self.fault.reward if key % 2 else np.zeros(keys.shape)
        values = {"observation": self.fault.obs, "reward": reward}
        values = jax.tree.map(lambda leaf: leaf[agent, update], values)
        return _describe_non_finite(self._location_of(key, agent, update), **values)

    def first_outside_space(self, observation_space: Callable[[], Space]) -> FaultDescription | None:
        """The first observation that is not in its space."""
        keys = np.where(self.fault.key >= OUTSIDE_SPACE, self.fault.key, NO_FAULT)
        agent, update = _first_fault(keys)
        if keys[agent, update] == NO_FAULT:
            return None
        obs = jax.tree.map(lambda leaf: leaf[agent, update], self.fault.obs)
        space = observation_space()
        problems = [_describe_outside(*leaf) for leaf in leaf_values(space, obs, "observation")]
        problem = next(filter(None, problems), f"observation is outside {space!r}")
        place = self._location_of(int(keys[agent, update]) - OUTSIDE_SPACE, agent, update)
        return FaultDescription("observation", obs, f"{problem}, {place}")

    def non_finite_state(self, **parts: Any) -> FaultDescription | None:
        """The first weight or running statistic that is NaN or infinite after the last update."""
        step = (self.done + self.loss.shape[1]) * self.config.batch
        return _describe_non_finite(self._location(step), **parts)

    def _location_of(self, key: int, agent: int, update: int) -> str:
        number = key // 2
        step = (self.done + update) * self.config.batch + number - self.config.num_envs + 1
        return self._location(step, agent, number % self.config.num_envs)

    def _location(self, step: int, agent: int | None = None, environment: int | None = None) -> str:
        which = [] if environment is None else [f"environment {environment}"]
        which += [f"agent {agent}"] if self.loss.shape[0] > 1 and agent is not None else []
        if step < 1:
            return f"after the first reset ({', '.join(which)})"
        update = math.ceil(step / self.config.batch)
        return f"at step {step:,} ({', '.join([f'update {update:,}', *which])})"


def _first_fault(keys: Any) -> tuple[int, int]:
    """`(agent, update)` of the first fault in the earliest update that has one."""
    update = int(np.argmax((keys != NO_FAULT).any(0)))
    return int(np.argmin(keys[:, update])), update


def _describe_non_finite(place: str, **trees: Any) -> FaultDescription | None:
    """The first number in the named trees that is NaN or infinite."""
    for name, tree in trees.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            bad: Any = np.argwhere(~np.isfinite(leaf)) if is_real(leaf) else ()
            if len(bad):
                value = float(leaf[tuple(bad[0])])
                entry = f"{name}{jax.tree_util.keystr(path)}{_index_suffix(bad[0])}"
                return FaultDescription(name, value, f"{entry} is {value} {place}")
    return None


def _index_suffix(index: Any) -> str:
    return f"[{', '.join(map(str, index))}]" if len(index) else ""


def _describe_outside(name: str, space: Space, x: Any) -> str:
    """Why a value is not in a space; empty if it is."""
    if space.contains(x):
        return ""
    if isinstance(space, Box) and isinstance(x, np.ndarray | np.generic) and x.shape == space.shape:
        beyond = np.argwhere(~((x >= space.low) & (x <= space.high)))
        if len(beyond):
            return f"{name}{_index_suffix(beyond[0])} is {np.asarray(x)[tuple(beyond[0])]}, outside {space!r}"
    if isinstance(x, np.ndarray) and x.ndim:
        return f"{name} has the shape {x.shape} and dtype {x.dtype}, outside {space!r}"
    return f"{name} is {x}, outside {space!r}"
