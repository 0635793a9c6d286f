"""The compiled program of an environment, shared by all sessions of equal environments."""

from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from tropism.core.compiled.packing import Layout, SplitLayout
from tropism.core.compiled.process import check_process
from tropism.core.environment import Environment, Info
from tropism.core.episode import Episode, Timestep, next_episode_key, start_episode, step_episode
from tropism.errors import ValidationError

Words = UInt32[Array, " _"]
Packed = tuple[Any, ...]  # params: words, then the large arrays


class Program:
    """Compiled reset and step over one packed buffer that holds the episode and the timestep.

    The buffer that a step returns is the input of the next one, so a step is one dispatch with one input and
    one output. The buffer is immutable, so forking a session only keeps a reference.
    """

    def __init__(self, env: Environment, params_layout: SplitLayout):
        self.env = env
        self.params_layout = params_layout
        shapes = jax.eval_shape(lambda packed: first_step(env, params_layout.unpack(packed)), params_layout.shapes())
        episode, timestep, first_info = shapes
        self.layout = Layout((episode, timestep))
        self.head = Layout(episode)
        self.timestep: Timestep = self.layout.structure(self.layout.slots)[1]
        self._step_info, self.reset_info = timestep.info, tuple(first_info)
        self.native_form: Any = None  # set by core.native

    @cached_property
    def reset(self) -> Any:
        # Dropping unused params would leave the buffer uncommitted to a device, and `step` would compile twice.
        return jax.jit(self.pure_reset, keep_unused=True)

    @cached_property
    def reset_next(self) -> Any:
        return jax.jit(lambda buffer, params: self.pure_reset(next_episode_key(buffer[:2]), params))

    @cached_property
    def step(self) -> Any:
        return jax.jit(self.pure_step)

    @cached_property
    def render(self) -> Any:
        return jax.jit(self._render)

    def pure_reset(self, key: UInt32[Array, " 2"], params: Packed) -> Words:
        episode, first = start_episode(self.env, key, self.params_layout.unpack(params))
        return self.layout.pack((episode, first._replace(info=pad_info(first.info, self._step_info))))

    def pure_step(self, buffer: Words, action: Any, params: Packed) -> Words:
        episode = self.head.unpack(buffer)
        return self.layout.pack(step_episode(self.env, episode, action, self.params_layout.unpack(params)))

    def _render(self, buffer: Words, params: Packed) -> Any:
        return self.env.render(self.head.unpack(buffer).state, self.params_layout.unpack(params))


def first_step(env: Environment, params: Any) -> tuple[Episode, Timestep, Info]:
    """An episode after its first step, which has the shapes of all later ones, and the info of its reset."""
    episode, first = start_episode(env, jnp.zeros(2, jnp.uint32), params)
    action = env.action_space(params).sample(jax.random.key(0))
    return *step_episode(env, episode, action, params), first.info


def pad_info(first_info: Info, step_info: Info) -> Info:
    """The info of a reset with all keys of a step's info, which is given by shapes; the missing ones are zeros."""
    return {**jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), step_info), **first_info}


_programs: dict[Any, Program] = {}


def program_of(env: Environment, params: Any) -> Program:
    """The program shared by equal environments whose params have equal structure."""
    check_process()
    for leaf in jax.tree.leaves(params):
        if not isinstance(leaf, bool | int | float | np.ndarray | np.generic | jax.Array):
            raise ValidationError("params", leaf, "numbers and arrays; mark anything else eqx.field(static=True)")
    layout = SplitLayout(params)
    key = env, layout.cache_key, bool(jax.config.jax_enable_x64)  # pyright: ignore
    if key not in _programs:
        _programs[key] = Program(env, layout)
    return _programs[key]


@cache
def host_device() -> Any:
    """The CPU: sessions step one environment at a time, which is slower on an accelerator."""
    return jax.local_devices(backend="cpu")[0]
