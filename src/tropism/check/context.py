"""The environment under test, and the episodes that the laws are checked on."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.check.compare import to_host
from tropism.check.law_error import attempt
from tropism.core.adapters.class_based import as_environment
from tropism.core.compiled.options import quick_options
from tropism.core.environment import Environment
from tropism.core.episode import Timestep, host_key, seed_words, step_key
from tropism.core.params import override
from tropism.core.session.session import EnvironmentState, Session
from tropism.core.spaces import Space

SHORT = 10  # steps, where they run uncompiled
POOL = 1024  # random actions of a seed, which are then repeated
MAX_TEXTS = 64

Found = TypeVar("Found")
Disturb = Callable[[Session, Any], object]


class Calls(NamedTuple):
    """`reset` and `step` of an environment with its params bound, plain or compiled."""

    reset: Callable[[Any], Any]
    step: Callable[[Any, Any, Any], Any]


class StepRecord(NamedTuple):
    """What a reset or a step returned, copied; a reset has no reward, done or info, a host environment no state."""

    obs: Any
    state: Any
    reward: Any = None
    done: Any = None
    info: Any = None


class CheckContext:
    """An environment with its params, and the data that several laws share."""

    def __init__(self, env: Any, params: Any, seed: int, num_steps: int):
        self._env = env
        self.seed = seed
        self.num_steps = num_steps
        self._overrides = {} if params is None else params
        self._found: dict[Any, Any] = {}

    @cached_property
    def env(self) -> Any:
        return as_environment(self._env)

    @property
    def pure(self) -> bool:
        return self.env.pure

    @cached_property
    def params(self) -> Any:
        return override(self.env.default_params(), self._overrides)

    @cached_property
    def action_space(self) -> Any:
        return self.env.action_space(self.params)

    @cached_property
    def observation_space(self) -> Any:
        return self.env.observation_space(self.params)

    @cached_property
    def plain(self) -> Calls:
        return calls_of(self.env, self.params)

    @cached_property
    def compiled_calls(self) -> Calls:
        return Calls(compile_quickly(self.plain.reset), compile_quickly(self.plain.step))

    @cached_property
    def fast(self) -> Calls:
        """Compiled if that works; if not, the law `jit` reports it."""

        def compile_calls() -> None:
            list(self.run(self.compiled_calls, self.seed, self.actions(self.seed, 1)))

        return self.compiled_calls if self.pure and attempt(compile_calls) is None else self.plain

    @property
    def compiles(self) -> bool:
        return self.fast is not self.plain

    def compute_once(self, find: Callable[..., Found], *arguments: Any) -> Found:
        """The result of `find(context, *arguments)`, cached for several laws."""
        key = find, arguments
        if key not in self._found:
            self._found[key] = find(self, *arguments)
        return self._found[key]

    def actions(self, seed: int, count: int, start: int = 0) -> list[Any]:
        """Random actions of a seed, as host values; always the same objects."""
        pool = self.compute_once(draw, self.action_space, seed, POOL)
        return [pool[number % len(pool)] for number in range(start, start + count)]

    def key(self, seed: int, time: int) -> Any:
        """The key that a Session uses for this step; 0 is the reset."""
        if self.pure:
            return _step_key(seed_words(seed), time)
        return host_key(seed, time) if time else seed

    def run(self, calls: Calls, seed: int, actions: Iterable[Any]) -> Iterator[StepRecord]:
        """Run an episode step by step until it ends or the actions run out."""
        for obs, state, *rest in self.play(calls, seed, actions):
            yield StepRecord(*to_host((obs, state if self.pure else None, *rest)))

    def play(self, calls: Calls, seed: int, actions: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """As `run`, but yields the objects that the environment returned, not copies."""
        obs, state = calls.reset(self.key(seed, 0))
        try:
            yield obs, state
            for time, action in enumerate(actions, 1):
                obs, state, reward, done, info = calls.step(self.key(seed, time), state, self.to_input(action))
                yield obs, state, reward, done, info
                if done:
                    break
        finally:
            self.env.close(state)

    def to_input(self, action: Any) -> Any:
        """An action as the environment gets it: of a pure one, arrays of JAX."""
        return jax.tree.map(jnp.asarray, action) if self.pure else action

    def cached_run(self, calls: Calls, seed: int, actions: list[Any]) -> list[StepRecord]:
        """The records of `run`, cached for several laws; not of a host environment, whose process may change."""
        key = "run", calls is self.plain, seed, *map(id, actions)
        if key not in self._found or not self.pure:
            self._found[key] = list(self.run(calls, seed, actions))
        return self._found[key]

    def session(self) -> Session:
        return Session(self.env, self.params)

    def run_session(
        self, seed: int, actions: list[Any], disturb: Disturb = lambda _session, _obs: None
    ) -> list[Timestep]:
        """The timesteps of an episode in its own session; `disturb` is called after each."""
        with self.session() as session:
            timesteps: list[Timestep] = []
            for timestep in episode(session, seed, actions):
                timesteps.append(to_host(timestep))
                disturb(session, timestep.obs)
            return timesteps


def calls_of(env: Environment, params: Any) -> Calls:
    return Calls(lambda key: env.reset(key, params), lambda key, state, action: env.step(key, state, action, params))


def episode(session: Session, seed: int, actions: list[Any]) -> Iterator[Timestep]:
    """Reset a session, with the seed if its environment takes one, and step it until the episode ends."""
    yield session.reset(seed=seed if session.env.traits.seedable else None)
    for action in actions:
        if session.lifecycle is not EnvironmentState.READY:
            break
        yield session.step(action)


def compile_quickly(function: Callable[..., Any], level: int = 0) -> Any:
    return jax.jit(function, compiler_options=quick_options(level))


_step_key = jax.jit(step_key)


def draw(context: CheckContext, space: Space, seed: int, count: int) -> list[Any]:
    """Random members of a space, as host values."""
    if not context.pure and space.shape is None:  # texts and records cannot be stacked, and are slow to draw
        return [space.sample(key) for key in random.split(random.key(seed), min(count, MAX_TEXTS))]
    stacked = to_host(space.sample(random.key(seed), (count,)))
    return [pick(stacked, number) for number in range(count)]


def stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def pick(stacked: Any, number: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[number], stacked)
