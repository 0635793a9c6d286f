"""One episode as a pure value: its key, its clock, its state. The only place that derives keys."""

from collections.abc import Callable
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

RESET = 0  # steps count from one, so the reset has the number before them
NEXT_EPISODE = 2**32 - 1
LONGEST_EPISODE_ID = 255


class Timestep(NamedTuple):
    """What an agent sees after a reset or a step."""

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


def begin(env: Environment, key: UInt32[Array, " 2"], params: Any) -> tuple[Episode, Timestep]:
    """The first observation of the episode that `key` seeds."""
    obs, state = env.reset(moment_key(key, RESET), params)
    return Episode(key, jnp.int32(0), state), first_timestep(env, obs, state, params)


def advance(env: Environment, episode: Episode, action: Any, params: Any) -> tuple[Episode, Timestep]:
    """One step of the episode, with the key that belongs to it."""
    time = episode.time + 1
    obs, state, reward, done, info = env.step(moment_key(episode.key, time), episode.state, action, params)
    return Episode(episode.key, time, state), step_timestep(env, obs, state, reward, done, info, params)


def next_episode(env: Environment, episode: Episode, params: Any) -> tuple[Any, Episode]:
    """`(obs, episode)` of the episode that follows; what outlives episodes is kept."""
    key = next_key(episode.key)
    obs, state = env.restart(moment_key(key, RESET), episode.state, params)
    return obs, Episode(key, jnp.int32(0), state)


def first_timestep(env: Environment, obs: Any, state: Any, params: Any) -> Timestep:
    return Timestep(obs, jnp.float32(0), jnp.bool_(False), jnp.bool_(False), env.info(state, params))


def step_timestep(env: Environment, obs: Any, state: Any, reward: Any, done: Any, info: Info, params: Any) -> Timestep:
    """The outputs of `env.step` in the one form every surface hands on."""
    terminated, truncated = flags(done, info)
    rest = {name: value for name, value in info.items() if name not in ("terminated", "truncated")}
    return Timestep(
        obs,
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(terminated, bool),
        jnp.asarray(truncated, bool),
        {**env.info(state, params), **rest},
    )


def moment_key(key: UInt32[Array, " 2"], number: Any) -> Any:
    """The key of step `number` of the episode (0 is its reset)."""
    return random.fold_in(random.wrap_key_data(key, impl="threefry2x32"), number)


def next_key(key: UInt32[Array, " 2"]) -> UInt32[Array, " 2"]:
    """The key of the episode that follows when nobody gives a seed."""
    return random.key_data(moment_key(key, NEXT_EPISODE))


def check_seed(seed: Any) -> int:
    if not is_integer(seed) or int(seed) < 0:
        raise ValidationError("seed", seed, "None or a whole number of at least 0")
    return int(seed)


def check_episode_id(id: Any) -> None:
    if not isinstance(id, str) or not 1 <= len(id) <= LONGEST_EPISODE_ID:
        raise ValidationError("episode_id", id, f"None or a string of 1 to {LONGEST_EPISODE_ID} characters")


def seed_words(seed: int) -> NDArray[Any]:
    """A seed as a key; one of more than 64 bits is folded."""
    if seed >= 2**64:
        size = -(-seed.bit_length() // 8)
        seed = int.from_bytes(blake2b(seed.to_bytes(size, "big"), digest_size=8).digest(), "big")
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


def words_seed(words: Any) -> int:
    """The seed that gives this key."""
    return (int(words[0]) << 32) | int(words[1])


def small_seed(seed: int) -> int:
    """A seed of 32 bits, the most that many a random generator takes; a small one is itself."""
    return seed if seed < 2**32 else host_key(seed, 0) % 2**32


def host_key(seed: int, number: int) -> int:
    """The key of step `number` in a host environment, where keys are plain ints."""
    return host_keys(seed)(number)


def host_keys(seed: int) -> Callable[[int], int]:
    """`host_key` of this seed."""
    begun = blake2b(b"%d:" % seed, digest_size=8)

    def key(number: int) -> int:
        hashed = begun.copy()
        hashed.update(b"%d" % number)
        return int.from_bytes(hashed.digest(), "big")

    return key
