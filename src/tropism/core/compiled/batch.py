"""Many environments as one compiled program over one packed buffer."""

from functools import cache, cached_property
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import ShapeDtypeStruct
from jaxtyping import Array, Bool, UInt32

from tropism.core.compiled.options import supported_options
from tropism.core.compiled.packing import Layout, compute_at_once
from tropism.core.compiled.process import check_process
from tropism.core.compiled.program import first_step, host_device, pad_info
from tropism.core.compiled.reset_where import reset_where, select
from tropism.core.environment import Environment
from tropism.core.episode import Episode, next_episode_key, start_episode, start_next_episode, step_episode
from tropism.core.transforms.auto_reset import Mode

MAX_PROGRAMS = 64  # cached for the next vector of the same environment and size
SEQUENTIAL = 1  # kernels one after another: those of a step are too small to be distributed over threads

Words = UInt32[Array, "..."]


class Carry(NamedTuple):
    """The state passed from step to step; `over` marks the episodes that the next step must restart."""

    episode: Episode
    over: Any


class BatchStep(NamedTuple):
    """The result of a step; `final_*` are the values before a restart, in `same_step` mode only."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    final_obs: Any = None
    final_info: Any = None


class BatchProgram:
    """Compiled reset and step of `num_envs` environments.

    Params are one packed row shared by all environments, or one row for each.
    """

    def __init__(self, env: Environment, params_layout: Layout, num_envs: int, mode: Mode):
        self.env = env
        self.params_layout = params_layout
        self.num_envs = num_envs
        self.mode: Mode = mode
        words = ShapeDtypeStruct((params_layout.size,), jnp.uint32)
        _, timestep, first_info = jax.eval_shape(lambda words: first_step(env, params_layout.unpack(words)), words)
        self._step_info, self.reset_info = timestep.info, tuple(first_info)
        self.example = example = jax.eval_shape(self._example, ShapeDtypeStruct((num_envs, 2), jnp.uint32), words)
        self.layout = Layout(example)
        self.head = Layout(example[0])
        self.carry: Carry
        self.out: BatchStep
        self.carry, self.out = self.layout.structure(self.layout.slots)

    def _example(self, keys: Words, words: Words) -> tuple[Carry, BatchStep]:
        params = self.params_layout.unpack(words)
        episode, _ = jax.vmap(start_episode, (None, 0, None))(self.env, keys, params)
        actions = self.env.action_space(params).sample(jax.random.key(0), (self.num_envs,))
        return self._step_all(Carry(episode, jnp.zeros(self.num_envs, bool)), actions, words, words)

    @cached_property
    def step(self) -> Any:
        """`(buffer, actions, params of the running episodes, params of the next ones) -> buffer`."""
        return jax.jit(self._step, compiler_options=supported_options(xla_cpu_scheduler_type=SEQUENTIAL))

    @cached_property
    def reset(self) -> Any:
        """`(buffer, keys, seeded, mask, params) -> buffer`; without a seed, the next episode starts."""
        # Dropping unused params would leave the buffer uncommitted to a device, and `step` would compile twice.
        return jax.jit(self._reset, keep_unused=True)

    @cached_property
    def render(self) -> Any:
        return jax.jit(self._render)

    def _step(self, buffer: Words, actions: Any, params: Words, base: Words) -> Words:
        return self.layout.pack(self._step_all(self.head.unpack(buffer), actions, params, base))

    def _step_all(self, carry: Carry, actions: Any, params: Words, base: Words) -> tuple[Carry, BatchStep]:
        return jax.vmap(self._step_one, (0, 0, _axis(params), None))(carry, actions, params, base)

    def _step_one(self, carry: Carry, action: Any, params: Words, base: Words) -> tuple[Carry, BatchStep]:
        unpack = self.params_layout.unpack
        carry, out, restarts = self.advance(carry, action, unpack(params))
        if self.mode == "disabled":
            return carry, out
        source, value = (carry.episode, unpack(base)), (out.obs, carry.episode, out.info)
        obs, episode, info = reset_where(self._restart, restarts, source, value)
        return carry._replace(episode=episode), out._replace(obs=obs, info=info)

    def advance(self, carry: Carry, action: Any, params: Any) -> tuple[Carry, BatchStep, Any]:
        """A step of one environment, and whether its episode must then be restarted."""
        episode, timestep = step_episode(self.env, carry.episode, action, params)
        obs, reward, terminated, truncated, info = timestep
        done = terminated | truncated
        if self.mode == "disabled":
            return Carry(episode, done), BatchStep(*timestep), jnp.zeros_like(done)
        if self.mode == "same_step":
            return Carry(episode, jnp.zeros_like(done)), BatchStep(*timestep, obs, info), done
        over = carry.over
        episode = jax.tree.map(lambda old, new: jnp.where(over, old, new), carry.episode, episode)
        reward, terminated, truncated = jnp.where(over, 0, reward), terminated & ~over, truncated & ~over
        return Carry(episode, terminated | truncated), BatchStep(obs, reward, terminated, truncated, info), over

    def _restart(self, source: Any) -> Any:
        return compute_at_once(self.restart(*source))

    def restart(self, episode: Episode, params: Any) -> tuple[Any, Episode, Any]:
        """Observation, episode and info at the start of the next episode."""
        obs, episode = start_next_episode(self.env, episode, params)
        return obs, episode, pad_info(self.env.info(episode.state, params), self._step_info)

    def _reset(
        self, buffer: Words, keys: Words, seeded: Bool[Array, " batch"], mask: Bool[Array, " batch"], params: Words
    ) -> Words:
        carry, out = self.layout.unpack(buffer)

        def reset_one(episode_key: Words, key: Words, seeded: Any, params: Words) -> tuple[Carry, BatchStep]:
            return self.begin(episode_key, key, seeded, self.params_layout.unpack(params))

        begun, first = jax.vmap(reset_one, (0, 0, 0, _axis(params)))(carry.episode.key, keys, seeded, params)
        new = begun, first._replace(final_obs=out.final_obs, final_info=out.final_info)
        return self.layout.pack(select(mask, new, (carry, out)))

    def begin(self, episode_key: Words, key: Words, seeded: Any, params: Any) -> tuple[Carry, BatchStep]:
        """Reset one environment with `key`, or without a seed to the episode that follows the one of `episode_key`."""
        key = jnp.where(seeded, key, next_episode_key(episode_key))
        episode, first = start_episode(self.env, key, params)
        return Carry(episode, jnp.bool_(False)), BatchStep(*first._replace(info=pad_info(first.info, self._step_info)))

    def _render(self, buffer: Words, params: Words) -> Any:
        def draw(state: Any, words: Words) -> Any:
            return self.env.render(state, self.params_layout.unpack(words))

        return jax.vmap(draw, (0, _axis(params)))(self.head.unpack(buffer).episode.state, params)


def _axis(params: Words) -> int | None:
    return 0 if params.ndim == 2 else None


@cache
def batch_device() -> Any:
    """A CPU device that runs a step in the calling thread, because waking another one costs more than a small step.

    JAX's default CPU device is asynchronous. Arrays on this one never leave the vector environment. Falls back
    to the default if jaxlib does not have this interface.
    """
    try:
        return import_module("jaxlib.xla_client").make_cpu_client(asynchronous=False).local_devices()[0]
    except (ImportError, AttributeError, TypeError):
        return host_device()


_programs: dict[Any, BatchProgram] = {}


def batch_program_of(env: Environment, params_layout: Layout, num_envs: int, mode: Mode) -> BatchProgram:
    """The program shared by all vectors of this environment, size and mode."""
    check_process()
    key = env, params_layout.cache_key, num_envs, mode, bool(jax.config.jax_enable_x64)  # pyright: ignore
    program = _programs.pop(key, None) or BatchProgram(env, params_layout, num_envs, mode)
    _programs[key] = program
    if len(_programs) > MAX_PROGRAMS:
        del _programs[next(iter(_programs))]  # the least recently used
    return program
