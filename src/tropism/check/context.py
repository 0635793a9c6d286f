"""The environment under test, and the short episodes that the laws are checked on."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.check.compare import difference, format_value, to_host
from tropism.check.finding import Finding, attempt
from tropism.check.shrink import shrink
from tropism.core.environment import Environment
from tropism.core.episode import Timestep, host_key_function, seed_words, step_key
from tropism.core.params import override
from tropism.core.session.session import EnvironmentState, Session
from tropism.core.spaces import Space

SHORT = 10  # steps, where they run uncompiled
NUM_SEEDS = 2
NUM_SAMPLES = 8
MAX_SPACES = 64  # compiled samplers cached for the next check
MAX_SEEDS = 64
LONGEST_EXAMPLE = 20  # actions shown in full
POOL = 4096  # random actions drawn in one call
LARGEST_POOL = 2**26  # bytes
# Checks run compiled code only briefly, so optimising it takes longer than it saves.
FAST_COMPILATION = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
}


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


Fails = Callable[[int, list[Any]], Finding | None]
Found = TypeVar("Found")


class CheckContext:
    """An environment with its params, and the data that several laws share."""

    def __init__(self, env: Any, params: Any, seed: int, num_steps: int):
        self.env = env
        self.seed = seed
        self.num_steps = num_steps
        self._overrides = {} if params is None else params
        self._pools: dict[int, Any] = {}
        self._actions: dict[int, list[Any]] = {}
        self._key_words: dict[int, Any] = {}
        self._found: dict[Any, Any] = {}
        self._episodes: dict[tuple[bool, int], list[StepRecord]] = {}

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
    def plain(self) -> Calls:
        return calls_of(self.env, self.params)

    @cached_property
    def compiled(self) -> Calls:
        return Calls(compile_quickly(self.plain.reset), compile_quickly(self.plain.step))

    @cached_property
    def fast(self) -> Calls:
        """Compiled if that works; if not, the law `jit` reports it."""
        if not self.pure or attempt(lambda: self._compile()) is not None:
            return self.plain
        return self.compiled

    def _compile(self) -> None:
        list(self.run(self.compiled, self.seed, self.actions(self.seed, 1)))

    def actions(self, seed: int, count: int) -> list[Any]:
        """The first random actions of a seed, as host values."""
        return list(self.stream(seed, 0, count))

    def stream(self, seed: int, start: int, stop: int) -> Iterator[Any]:
        """The same from index `start` on, drawn as they are needed."""
        drawn = self._actions.setdefault(seed, [])
        for number in range(start, stop):
            while len(drawn) <= number:
                drawn.append(self._draw(seed, len(drawn)))
            yield drawn[number]

    def _draw(self, seed: int, number: int) -> Any:
        if not self.pure and self.action_space.shape is None:  # texts and records cannot be stacked
            return self.action_space.sample(_wrap(self._words(seed, number)[number]))
        pool, size = self.pool(seed)
        return jax.tree.map(lambda leaf: leaf[number % size], pool)

    def pool(self, seed: int) -> tuple[Any, int]:
        """Stacked random members of the action space, and their number."""
        if seed not in self._pools:
            sample = _pool_sampler(self.action_space, self._pool_size, self.pure)
            self._pools[seed] = to_host(sample(random.key(seed)))
        return self._pools[seed], self._pool_size

    @cached_property
    def _pool_size(self) -> int:
        action = jax.eval_shape(self.action_space.sample, random.key(0))
        size = sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(action))
        return POOL if POOL * size <= LARGEST_POOL else self.num_steps

    def samples(self, space: Space) -> list[Any]:
        """Samples of a space with the first seeds."""
        seeds = range(NUM_SAMPLES)
        if not self.pure:
            return [to_host(space.sample(random.key(seed))) for seed in seeds]
        drawn = to_host(_sampler(space)(np.arange(NUM_SAMPLES)))
        return [jax.tree.map(lambda leaf, seed=seed: leaf[seed], drawn) for seed in seeds]

    def key(self, seed: int, time: int) -> Any:
        """The key that a Session uses for this step; 0 is the reset."""
        if self.pure:
            return _wrap(self._words(seed, time)[time])
        return _host_keys(seed)(time) if time else seed

    def keys(self, seed: int, count: int) -> Any:
        """The keys of a reset and `count` steps, stacked."""
        return _wrap(self._words(seed, count)[: count + 1])

    def batch_keys(self, seeds: Iterable[int], count: int) -> Any:
        """The same of several seeds, stacked along a leading axis."""
        return _wrap(np.stack([self._words(seed, count)[: count + 1] for seed in seeds]))

    def _words(self, seed: int, last: int) -> Any:
        """The words of the keys up to step `last`, derived in bulk."""
        derived = len(self._key_words.get(seed, ()))
        if derived <= last:
            count = max(1 + last, 1 + self.num_steps, 1 + SHORT, 2 * derived)
            self._key_words[seed] = np.asarray(_key_deriver()(seed_words(seed), count))
        return self._key_words[seed]

    def compute_once(self, find: Callable[["CheckContext"], Found]) -> Found:
        """The result of `find`, cached for several laws."""
        if find not in self._found:
            self._found[find] = find(self)
        return self._found[find]

    def run(self, calls: Calls, seed: int, actions: Iterable[Any]) -> Iterator[StepRecord]:
        """Run an episode step by step until it ends or the actions run out."""
        for obs, state, *rest in self.play(calls, seed, actions):
            yield StepRecord(*to_host((obs, state if self.pure else None, *rest)))

    def cached_run(self, calls: Calls, seed: int, actions: list[Any]) -> Iterable[StepRecord]:
        """The same, cached for the laws that need only one run."""
        if any(action is not drawn for action, drawn in zip(actions, self._actions[seed], strict=False)):
            return self.run(calls, seed, actions)
        key = calls is self.plain, seed
        records = self._episodes.get(key, [])
        ended = len(records) > 1 and bool(records[-1].done)
        if len(records) <= len(actions) and not ended:
            self._episodes[key] = records = list(self.run(calls, seed, actions))
        return records[: len(actions) + 1]

    def reference(self, seed: int, actions: list[Any]) -> list[StepRecord]:
        """A run of plain calls to compare others with; not cached for a host environment, whose process may change."""
        return list((self.cached_run if self.pure else self.run)(self.plain, seed, actions))

    def play(self, calls: Calls, seed: int, actions: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """As `run`, but yields the objects that the environment returned, not copies."""
        obs, state = calls.reset(self.key(seed, 0))
        try:
            yield obs, state
            for time, action in enumerate(actions, 1):
                action = jax.tree.map(jnp.asarray, action) if self.pure else action
                obs, state, reward, done, info = calls.step(self.key(seed, time), state, action)
                yield obs, state, reward, done, info
                if done:
                    break
        finally:
            self.env.close(state)

    def session(self) -> Session:
        return Session(self.env, self.params)

    def reset(self, session: Session, seed: int) -> None:
        """Reset with this seed if the environment takes one."""
        session.reset(seed=seed if self.env.traits.seedable else None)

    def find_smallest(self, fails: Fails, count: int = SHORT, place: str = "step") -> Finding | None:
        """Try random actions and shrink those that fail. `place` is reported for an exception that was raised
        outside the environment's methods."""
        for seed in range(self.seed, self.seed + NUM_SEEDS):
            actions = self.actions(seed, count)
            finding = attempt(lambda seed=seed, actions=actions: fails(seed, actions), place)
            if finding is not None:
                finding, actions = shrink(lambda fewer, seed=seed: fails(seed, fewer), finding, actions)
                return self.with_example(finding, seed, actions)
        return None

    def with_example(self, finding: Finding, seed: int, actions: list[Any]) -> Finding:
        """The finding with the seed and actions that lead to it."""
        shown = [self.action_space.to_json(action) for action in actions[:LONGEST_EXAMPLE]]
        more = f" and {len(actions) - LONGEST_EXAMPLE} more" if len(actions) > LONGEST_EXAMPLE else ""
        space = "\n" if "\n" in finding.message else " "
        return finding._replace(message=f"{finding.message}{space}(seed {seed}, actions {shown}{more})")


def calls_of(env: Environment, params: Any) -> Calls:
    return Calls(lambda key: env.reset(key, params), lambda key, state, action: env.step(key, state, action, params))


def compile_quickly(function: Callable[..., Any], *, level: int = 0, **options: Any) -> Any:
    """`jax.jit` with little optimisation; `level` 1 is for thousands of steps."""
    return jax.jit(function, compiler_options=_compile_options(level), **options)


@cache
def _compile_options(level: int) -> dict[str, Any]:
    """The options if this version of XLA has them; they apply only to the CPU."""
    options = {**FAST_COMPILATION, "xla_backend_optimization_level": level}
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x + 1, compiler_options=options)(np.float32(0))
    except jax.errors.JaxRuntimeError:
        return {}
    return options


_host_keys = lru_cache(MAX_SEEDS)(host_key_function)


def _wrap(words: NDArray[np.uint32]) -> Any:
    return random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


@cache
def _key_deriver() -> Callable[[Any, int], Any]:
    def derive(words: Any, count: int) -> Any:
        return random.key_data(jax.vmap(step_key, (None, 0))(words, jnp.arange(count)))

    return compile_quickly(derive, static_argnums=1)


@lru_cache(MAX_SPACES)
def _pool_sampler(space: Space, size: int, pure: bool) -> Callable[[Any], Any]:
    """A function that draws `size` members of a space, compiled for a pure environment."""

    def sample(key: Any) -> Any:
        return space.sample(key, (size,))

    return compile_quickly(sample) if pure else sample


@lru_cache(MAX_SPACES)
def _sampler(space: Space) -> Callable[[Any], Any]:
    """A function that draws one member of a space per seed."""
    return compile_quickly(jax.vmap(lambda seed: space.sample(random.key(seed))))


def compare_runs(place: str, actual: Any, expected: Any, tolerance: float = 0.0) -> Finding | None:
    """The first step where two runs of one episode differ."""
    actual, expected = list(actual), list(expected)
    for time, (x, y) in enumerate(zip(actual, expected, strict=False)):
        found = difference(x, y, tolerance)
        if found is not None:
            return Finding("reset" if time == 0 else place, f"step {time}: {found}" if time else f"reset: {found}")
    if len(actual) != len(expected):
        return Finding(place, f"the episode ended after {len(actual) - 1} steps, not {len(expected) - 1}")
    return None


def play(session: Session, actions: list[Any]) -> Iterator[Timestep]:
    """Step a session until the episode ends or the actions run out; yields copies."""
    for action in actions:
        if session.lifecycle is not EnvironmentState.READY:
            break
        yield to_host(session.step(action))


def format_state(record: StepRecord) -> str:
    """The leaves of the state on one line."""
    return format_value([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(record.state)])
