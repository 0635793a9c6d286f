"""Runs a policy one step at a time, in a session or on a server."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.episode import host_key, host_key_function, seed_words
from tropism.core.rollout.episodes import POLICY_STREAM, policy_key
from tropism.core.rollout.policy import Policy, check_result, runs_on_host


class SteppedPolicy:
    """A policy during an episode: its memory and its keys.

    With a pure environment it is compiled and draws the same random numbers as in `run_episodes`; a policy on the host
    gets plain ints as keys. The keys come from a separate stream, so they differ from the environment's.
    """

    def __init__(self, policy: Policy, pure: bool = True):
        self._policy = policy
        self._compiled = _CompiledPolicy(policy) if pure and not runs_on_host(policy) else None

    def reset(self, seed: int) -> None:
        """Start an episode with the seed of the environment's."""
        self._steps = 0
        if self._compiled is not None:
            self._words = seed_words(seed)
            self._memory = self._compiled.init(self._words)
        else:
            self._key = host_key_function(host_key(seed, POLICY_STREAM))
            self._memory = self._policy.init(seed)

    @property
    def memory(self) -> NDArray[np.float32]:
        """The numbers of the policy's memory, as one vector; empty if it has none."""
        leaves = [np.asarray(leaf, np.float32).ravel() for leaf in jax.tree.leaves(self._memory)]
        return np.concatenate([np.zeros(0, np.float32), *leaves])

    def act(self, obs: Any) -> Any:
        """The next action, as NumPy or Python values."""
        if self._compiled is not None:
            result = self._compiled.act(self._words, self._steps, self._memory, obs)
        else:
            result = check_result(self._policy, self._policy.act(self._key(self._steps), self._memory, obs))
        self._steps += 1
        action, self._memory = result
        return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, action)


class _CompiledPolicy:
    """Compiled `init` and `act` that take the episode's seed instead of a key."""

    def __init__(self, policy: Policy):
        arrays, rest = eqx.partition(policy, eqx.is_array)

        def init(arrays: Any, words: Any) -> Any:
            return eqx.combine(arrays, rest).init(policy_key(words))

        def act(arrays: Any, words: Any, step: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
            key = random.fold_in(policy_key(words), step)
            return check_result(policy, eqx.combine(arrays, rest).act(key, memory, obs))

        self.init, self.act = partial(jax.jit(init), arrays), partial(jax.jit(act), arrays)
