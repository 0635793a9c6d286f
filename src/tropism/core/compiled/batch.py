"""Many environments as one compiled program over one packed buffer."""

from functools import cache, cached_property
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jaxtyping import Array, Bool, UInt32

from tropism.core.compiled.packing import WORD, Layout
from tropism.core.compiled.program import host_device
from tropism.core.compiled.reset_where import replace_where
from tropism.core.environment import Environment
from tropism.core.episode import Episode, advance, begin, next_episode, next_key
from tropism.core.transforms.auto_reset import Mode

MOST_PROGRAMS = 64  # kept for the next vector of the same kind and size
SEQUENTIAL = {"xla_cpu_scheduler_type": 1}

Words = UInt32[Array, "..."]


class Carry(NamedTuple):
    """What one step hands to the next; `over` marks the episodes that the next step must restart."""

    episode: Episode
    over: Any


class BatchStep(NamedTuple):
    """What the caller sees; `final_*` are those before a restart, in `same_step` mode only."""

    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    final_obs: Any = None
    final_info: Any = None


class BatchProgram:
    """Compiled reset and step of `num_envs` environments.

    Params are one packed row, shared by all, or a row for each environment.
    """

    def __init__(self, env: Environment, params_layout: Layout, num_envs: int, mode: Mode):
        self.env = env
        self.params_layout = params_layout
        self.num_envs = num_envs
        self.mode: Mode = mode
        self._step_info, first_info = jax.eval_shape(self._infos, ShapeDtypeStruct((params_layout.size,), jnp.uint32))
        self.reset_info = tuple(first_info)
        keys = ShapeDtypeStruct((num_envs, 2), jnp.uint32)
        example = jax.eval_shape(self._example, keys, ShapeDtypeStruct((params_layout.size,), jnp.uint32))
        self.layout = Layout(example)
        self.head = Layout(example[0])
        self.carry: Carry
        self.out: BatchStep
        self.carry, self.out = self.layout.structure(self.layout.slots)
        self.seen = Layout(example[1][:5]).size, self.head.size * WORD  # words, from byte

    def _infos(self, words: Words) -> tuple[Any, Any]:
        params = self.params_layout.unpack(words)
        episode, first = begin(self.env, jnp.zeros(2, jnp.uint32), params)
        action = self.env.action_space(params).sample(jax.random.key(0))
        return advance(self.env, episode, action, params)[1].info, first.info

    def _example(self, keys: Words, words: Words) -> tuple[Carry, BatchStep]:
        params = self.params_layout.unpack(words)
        episode, _ = jax.vmap(begin, (None, 0, None))(self.env, keys, params)
        actions = self.env.action_space(params).sample(jax.random.key(0), (self.num_envs,))
        return self._step_all(Carry(episode, jnp.zeros(self.num_envs, bool)), actions, words, words)

    @cached_property
    def step(self) -> Any:
        """`(buffer, actions, params of the episodes, params of episodes to come) -> buffer`."""
        return jax.jit(self._step, compiler_options=step_options())

    @cached_property
    def reset(self) -> Any:
        """`(buffer, keys, seeded, mask, params) -> buffer`; without a seed the next episode begins."""
        # A reset that ignores its params would return a buffer on no particular device, and `step` compile twice.
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
        episode, then = advance(self.env, carry.episode, action, unpack(params))
        obs, reward, terminated, truncated, info = then
        done = terminated | truncated
        if self.mode == "disabled":
            return Carry(episode, done), BatchStep(*then)
        if self.mode == "same_step":
            going_on = obs, episode, info
            obs, after, info = replace_where(self._restart, done, (episode, unpack(base)), going_on)
            return Carry(after, jnp.zeros_like(done)), BatchStep(obs, *then[1:4], info, then.obs, then.info)
        over, source = carry.over, (carry.episode, unpack(base))
        obs, after, info = replace_where(self._restart, over, source, (obs, episode, info))
        reward, terminated, truncated = jnp.where(over, 0, reward), terminated & ~over, truncated & ~over
        return Carry(after, terminated | truncated), BatchStep(obs, reward, terminated, truncated, info)

    def _restart(self, source: Any) -> tuple[Any, Episode, Any]:
        episode, params = source
        obs, episode = next_episode(self.env, episode, params)
        return obs, episode, self._whole(self.env.info(episode.state, params))

    def _whole(self, first_info: Any) -> Any:
        """The info of a reset with the keys of a step's."""
        return {**jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self._step_info), **first_info}

    def _reset(
        self, buffer: Words, keys: Words, seeded: Bool[Array, " batch"], mask: Bool[Array, " batch"], params: Words
    ) -> Words:
        carry, out = self.layout.unpack(buffer)
        keys = jnp.where(seeded[:, None], keys, jax.vmap(next_key)(carry.episode.key))
        fresh = jax.vmap(self._begin_one, (0, 0, _axis(params)))(keys, out, params)
        return self.layout.pack(
            jax.tree.map(lambda new, old: jnp.where(_column(mask, new), new, old), fresh, (carry, out))
        )

    def _begin_one(self, key: Words, out: BatchStep, params: Words) -> tuple[Carry, BatchStep]:
        episode, first = begin(self.env, key, self.params_layout.unpack(params))
        first = first._replace(info=self._whole(first.info))
        return Carry(episode, jnp.bool_(False)), BatchStep(*first, out.final_obs, out.final_info)

    def _render(self, buffer: Words, params: Words) -> Any:
        def draw(state: Any, words: Words) -> Any:
            return self.env.render(state, self.params_layout.unpack(words))

        return jax.vmap(draw, (0, _axis(params)))(self.head.unpack(buffer).episode.state, params)


def _axis(params: Words) -> int | None:
    return 0 if params.ndim == 2 else None


def _column(mask: Any, like: Any) -> Any:
    return mask.reshape(mask.shape + (1,) * (jnp.ndim(like) - 1))


@cache
def batch_device() -> Any:
    """A CPU that runs a step in the thread that asks for it, because waking another one costs more than a small step.

    JAX's own CPU is asynchronous; what lives on this one never leaves the vector environment. Without
    this part of jaxlib's interface it is JAX's own.
    """
    try:
        return import_module("jaxlib.xla_client").make_cpu_client(asynchronous=False).local_devices()[0]
    except (ImportError, AttributeError, TypeError):
        return host_device()


@cache
def step_options() -> dict[str, Any]:
    """One kernel after another: a step's kernels are too small to be worth handing to other threads.

    The option is XLA's, and a version that does not have it says so when it compiles.
    """
    try:
        jax.jit(lambda x: x, compiler_options=SEQUENTIAL)(jax.device_put(np.float32(0), batch_device()))
    except jax.errors.JaxRuntimeError:
        return {}
    return SEQUENTIAL


_programs: dict[Any, BatchProgram] = {}


def batch_program_of(env: Environment, params_layout: Layout, num_envs: int, mode: Mode) -> BatchProgram:
    """The one program of equal vectors of equal environments."""
    which = env, params_layout.signature, num_envs, mode, bool(jax.config.jax_enable_x64)  # pyright: ignore
    program = _programs.pop(which, None) or BatchProgram(env, params_layout, num_envs, mode)
    _programs[which] = program
    if len(_programs) > MOST_PROGRAMS:
        del _programs[next(iter(_programs))]  # the one that was asked for longest ago
    return program
