"""An episode as a pure value: key, clock and state. The only module that derives keys."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Int, UInt32
from numpy.typing import NDArray

from tropism.core.environment import Environment, Info, flags
from tropism.core.spaces.space import is_integer
from tropism.errors import ValidationError

RESET = 0  # the number of the reset; steps count from one
NEXT_EPISODE = 2**32 - 1
LONGEST_EPISODE_ID = 255


class Timestep(NamedTuple):
    """The result of a reset or a step."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Info


class Episode(eqx.Module):
    """`key` is the 64-bit seed as two words, `time` the number of steps taken."""

    key: UInt32[Array, " 2"]
    time: Int[Array, ""]
    state: Any


def start_episode(env: Environment, key: UInt32[Array, " 2"], params: Any) -> tuple[Episode, Timestep]:
    """Reset the environment with the key of an episode."""
    obs, state = env.reset(step_key(key, RESET), params)
    first = Timestep(obs, jnp.float32(0), jnp.bool_(False), jnp.bool_(False), env.info(state, params))
    return Episode(key, jnp.int32(0), state), first


def step_episode(env: Environment, episode: Episode, action: Any, params: Any) -> tuple[Episode, Timestep]:
    """One step of the episode, with the key derived for it."""
    time = episode.time + 1
    obs, state, reward, done, info = env.step(step_key(episode.key, time), episode.state, action, params)
    return Episode(episode.key, time, state), step_timestep(env, obs, state, reward, done, info, params)


def start_next_episode(env: Environment, episode: Episode, params: Any) -> tuple[Any, Episode]:
    """`(obs, episode)` of the next episode, started with `restart`."""
    key = next_episode_key(episode.key)
    obs, state = env.restart(step_key(key, RESET), episode.state, params)
    return obs, Episode(key, jnp.int32(0), state)


def step_timestep(env: Environment, obs: Any, state: Any, reward: Any, done: Any, info: Info, params: Any) -> Timestep:
    """The outputs of `env.step` as a Timestep."""
    terminated, truncated = flags(done, info)
    rest = {name: value for name, value in info.items() if name not in ("terminated", "truncated")}
    return Timestep(
        obs,
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(terminated, bool),
        jnp.asarray(truncated, bool),
        {**env.info(state, params), **rest},
    )


def step_key(key: UInt32[Array, " 2"], number: Any) -> Any:
    """The key of step `number` of the episode (0 is its reset)."""
    return random.fold_in(random.wrap_key_data(key, impl="threefry2x32"), number)


def next_episode_key(key: UInt32[Array, " 2"]) -> UInt32[Array, " 2"]:
    """The key of the next episode when no seed is given."""
    return random.key_data(step_key(key, NEXT_EPISODE))


def check_seed(seed: Any) -> int:
    if not is_integer(seed) or int(seed) < 0:
        raise ValidationError("seed", seed, "None or a whole number of at least 0")
    return int(seed)


def check_episode_id(id: Any) -> None:
    if not isinstance(id, str) or not 1 <= len(id) <= LONGEST_EPISODE_ID:
        raise ValidationError("episode_id", id, f"None or a string of 1 to {LONGEST_EPISODE_ID} characters")


def seed_words(seed: int) -> NDArray[Any]:
    """A seed as the two words of a key; one of more than 64 bits is hashed."""
    if seed >= 2**64:
        size = -(-seed.bit_length() // 8)
        seed = int.from_bytes(blake2b(seed.to_bytes(size, "big"), digest_size=8).digest(), "big")
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


def seed_from_words(words: Any) -> int:
    """The seed that gives this key."""
    return (int(words[0]) << 32) | int(words[1])


def small_seed(seed: int) -> int:
    """A seed of at most 32 bits, the limit of many random generators; smaller seeds are unchanged."""
    return seed if seed < 2**32 else host_key(seed, 0) % 2**32


def host_key(seed: int, number: int) -> int:
    """The key of step `number` in a host environment, where keys are plain ints."""
    return host_key_function(seed)(number)


def host_key_function(seed: int) -> Callable[[int], int]:
    """`host_key` with the seed bound."""
    prefix = blake2b(b"%d:" % seed, digest_size=8)

    def key(number: int) -> int:
        hashed = prefix.copy()
        hashed.update(b"%d" % number)
        return int.from_bytes(hashed.digest(), "big")

    return key


def check_options(options: Any) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise ValidationError("options", options, "None or a dict")
    return options
