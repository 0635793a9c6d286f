"""auto_reset: starts the next episode automatically, in any of Gymnasium's three modes."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, Bool

from tropism.core.compiled.reset_where import Restarts, reset_where
from tropism.core.environment import Environment, Info, outcome
from tropism.core.episode import NEXT_EPISODE, step_timestep
from tropism.core.spaces.space import check_option
from tropism.core.transforms.transform import EPISODE_STATS, Transform, TransformState

Mode = Literal["next_step", "same_step", "disabled"]


def auto_reset(env: Environment, mode: Mode = "next_step", *, restarts: Restarts = "auto") -> Environment:
    """Start the next episode automatically.

    `same_step`: the step that ends an episode returns the first observation of the next one, and the last
    observation and info of the finished one in `info["final_obs"]` and `info["final_info"]`. `next_step`: the
    step after the end ignores its action and returns the first observation, with reward 0. `disabled`: the
    environment unchanged. In both modes the statistics of `episode_stats` at a step with `done` are those of
    the finished episode.
    Transforms applied to the result go inside it, so that `final_obs` passes through all of them.
    """
    check_option("mode", mode, Mode)
    check_option("restarts", restarts, Restarts)
    inner = env.env if isinstance(env, AutoReset) else env
    return inner if mode == "disabled" else AutoReset(inner, mode, restarts)


def apply_transform(build: Callable[[Environment], Environment], env: Environment) -> Environment:
    """Apply a transform, inside an AutoReset if there is one."""
    if isinstance(env, AutoReset):
        return AutoReset(build(env.env), env.mode, env.restarts)
    return build(env)


class AutoReset(Transform):
    """The memory is whether the episode is over (used by `next_step` only)."""

    mode: Mode
    restarts: Restarts

    def start(self, key: Any, memory: Any, params: Any) -> Bool[Array, ""]:
        return jnp.bool_(False)

    def step(self, key: Any, state: TransformState, action: Any, params: Any) -> tuple[Any, Any, Any, Any, Info]:
        obs, inner, reward, done, info = self.env.step(key, state.inner, action, params)
        obs, reward, terminated, truncated, rest = step_timestep(self.env, obs, inner, reward, done, info, params)
        over = (terminated | truncated) if self.mode == "same_step" else state.memory
        final_obs, final_info = obs, rest
        # In `next_step` this step is discarded, so the restart gets the state before it.
        ended = inner if self.mode == "same_step" else state.inner
        obs, inner = reset_where(self._restart, over, (key, ended, params), (obs, inner), self.restarts)
        first_info = {**jax.tree.map(jnp.zeros_like, rest), **self.env.info(inner, params)}
        rest = jax.tree.map(lambda new, old: jnp.where(over, new, old), first_info, rest)
        if self.mode == "same_step":
            finished = {name: final_info[name] for name in EPISODE_STATS if name in final_info}
            final = {"final_obs": final_obs} | ({"final_info": final_info} if final_info else {})
            rest = {**rest, **finished, **final}
        else:
            terminated, truncated, reward = terminated & ~over, truncated & ~over, jnp.where(over, 0, reward)
        done, info = outcome(terminated, truncated, rest)
        return obs, TransformState(inner.time, inner, done), reward, done, info

    def _restart(self, source: Any) -> tuple[Any, Any]:
        key, inner, params = source
        return self.env.restart(random.fold_in(key, NEXT_EPISODE), inner, params)
