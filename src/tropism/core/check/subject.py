"""The environment under examination, and the short episodes the laws are checked on."""

import traceback
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.check.compare import difference, host, spell
from tropism.core.check.report import Status
from tropism.core.environment import Environment, override
from tropism.core.episode import Timestep, host_key, moment_key, seed_words
from tropism.core.session import EnvironmentState, Session

SHORT = 10  # steps, where each is run without compilation
NUM_SEEDS = 2
MOST_TRIALS = 60  # how often a failing example is tried again to make it smaller
LONGEST_EXAMPLE = 20  # actions spelled out
LONGEST_ERROR = 300  # characters
PLACES = ("default_params", "reset", "step", "observation_space", "action_space", "render", "describe", "parse", "info")


class Finding(NamedTuple):
    """A law that does not hold: where, and what was seen."""

    place: str
    message: str
    status: Status = "failed"


class Calls(NamedTuple):
    """One way to call an environment: plain or compiled; both with its params filled in."""

    reset: Callable[[Any], Any]
    step: Callable[[Any, Any, Any], Any]


class Moment(NamedTuple):
    """What a reset or a step gave, copied; a reset has no reward, done or info, a host environment no state."""

    obs: Any
    state: Any
    reward: Any = None
    done: Any = None
    info: Any = None


Fails = Callable[[int, list[Any]], Finding | None]


class Subject:
    """An environment with its params, and everything about it that more than one law needs."""

    def __init__(self, env: Any, params: Any, seed: int, num_steps: int):
        self.env = env
        self.seed = seed
        self.num_steps = num_steps
        self._given = {} if params is None else params

    @property
    def traced(self) -> bool:
        return bool(self.env.traced)

    @cached_property
    def params(self) -> Any:
        return override(self.env.default_params(), self._given)

    @cached_property
    def action_space(self) -> Any:
        return self.env.action_space(self.params)

    @cached_property
    def plain(self) -> Calls:
        return calls_of(self.env, self.params)

    @cached_property
    def compiled(self) -> Calls:
        return Calls(jax.jit(self.plain.reset), jax.jit(self.plain.step))

    @cached_property
    def fast(self) -> Calls:
        """Compiled where that works; where it does not, the law `jit` says so."""
        if not self.traced or attempt(lambda: self._compile()) is not None:
            return self.plain
        return self.compiled

    def _compile(self) -> None:
        list(self.run(self.compiled, self.seed, self.actions(self.seed, 1)))

    def actions(self, seed: int, count: int) -> list[Any]:
        """Random members of the action space, one at a time as an agent would give them."""
        key = random.key(seed)
        if not self.traced and self.action_space.shape is None:  # texts and records do not stack
            return [self.action_space.sample(random.fold_in(key, i)) for i in range(count)]
        batch = host(self.action_space.sample(key, (count,)))
        return [jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(count)]

    def key(self, seed: int, time: int) -> Any:
        """The key a Session would use for this step; 0 is the reset."""
        if self.traced:
            return moment_key(jnp.asarray(seed_words(seed)), time)
        return host_key(seed, time) if time else seed

    def run(self, calls: Calls, seed: int, actions: list[Any]) -> Iterator[Moment]:
        """An episode, step by step, to its end or that of the actions."""
        for obs, state, *rest in self.play(calls, seed, actions):
            yield Moment(*host((obs, state if self.traced else None, *rest)))

    def play(self, calls: Calls, seed: int, actions: list[Any]) -> Iterator[tuple[Any, ...]]:
        """The same, with the very objects that the environment returned."""
        obs, state = calls.reset(self.key(seed, 0))
        try:
            yield obs, state
            for time, action in enumerate(actions, 1):
                action = jax.tree.map(jnp.asarray, action) if self.traced else action
                obs, state, reward, done, info = calls.step(self.key(seed, time), state, action)
                yield obs, state, reward, done, info
                if done:
                    break
        finally:
            self.env.close(state)

    def session(self) -> Session:
        return Session(self.env, self.params)

    def reset(self, session: Session, seed: int) -> None:
        """With this seed, where the environment takes one."""
        session.reset(seed=seed if self.env.seedable else None)

    def smallest(self, fails: Fails, count: int = SHORT, place: str = "step") -> Finding | None:
        """Try random actions; of those that fail, the fewest that still do. `place` is where an exception
        belongs that was not raised inside a method of the environment."""
        for seed in range(self.seed, self.seed + NUM_SEEDS):
            actions = self.actions(seed, count)
            finding = attempt(lambda seed=seed, actions=actions: fails(seed, actions), place)
            if finding is not None:
                finding, actions = shrink(lambda some, seed=seed: fails(seed, some), finding, actions)
                return finding._replace(message=f"{finding.message} (seed {seed}, {self._spell(actions)})")
        return None

    def _spell(self, actions: list[Any]) -> str:
        shown = [self.action_space.to_json(action) for action in actions[:LONGEST_EXAMPLE]]
        more = f" and {len(actions) - LONGEST_EXAMPLE} more" if len(actions) > LONGEST_EXAMPLE else ""
        return f"actions {shown}{more}"


def calls_of(env: Environment, params: Any) -> Calls:
    return Calls(lambda key: env.reset(key, params), lambda key, state, action: env.step(key, state, action, params))


def attempt(judge: Callable[[], Finding | None], place: str = "env") -> Finding | None:
    """What `judge` finds, or the exception that the environment raised meanwhile."""
    try:
        return judge()
    except Exception as error:  # noqa: BLE001  whatever a stranger's environment raises belongs in the report
        text = " ".join(str(error).split())
        text = text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}…"
        return Finding(_place_of(error) or place, f"{type(error).__name__}: {text}")


def _place_of(error: Exception) -> str | None:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if isinstance(frame.f_locals.get("self"), Environment) and frame.f_code.co_name in PLACES:
            return frame.f_code.co_name
    return None


def shrink(
    fails: Callable[[list[Any]], Finding | None], finding: Finding, actions: list[Any]
) -> tuple[Finding, list[Any]]:
    """The shortest beginning of `actions` that fails in the same place, then without those that do not matter."""
    trials = 0
    for fewer in _prefixes(actions):
        found = attempt(lambda fewer=fewer: fails(fewer), finding.place)
        if found is not None and found.place == finding.place:
            finding, actions = found, fewer
            break
    i = len(actions) - 1
    while i >= 0 and trials < MOST_TRIALS:
        fewer = actions[:i] + actions[i + 1 :]
        found = attempt(lambda fewer=fewer: fails(fewer), finding.place)
        trials += 1
        i -= 1
        if found is not None and found.place == finding.place:
            finding, actions, i = found, fewer, len(fewer) - 1  # what was needed before may not be any more
    return finding, actions


def _prefixes(actions: list[Any]) -> Iterator[list[Any]]:
    length = 0
    while length < len(actions):
        yield actions[:length]
        length = 2 * length or 1


def compare_runs(place: str, ours: Any, theirs: Any, tolerance: float = 0.0) -> Finding | None:
    """The first moment where two runs of one episode differ."""
    ours, theirs = list(ours), list(theirs)
    for time, (x, y) in enumerate(zip(ours, theirs, strict=False)):
        found = difference(x, y, tolerance)
        if found is not None:
            return Finding("reset" if time == 0 else place, f"step {time}: {found}" if time else f"reset: {found}")
    if len(ours) != len(theirs):
        return Finding(place, f"the episode ended after {len(ours) - 1} steps, not {len(theirs) - 1}")
    return None


def play(session: Session, actions: list[Any]) -> Iterator[Timestep]:
    """The steps of a session, copied, to the end of the episode or of the actions."""
    for action in actions:
        if session.lifecycle is not EnvironmentState.READY:
            break
        yield host(session.step(action))


def in_words(moment: Moment) -> str:
    """The state an observation was made from."""
    return spell([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(moment.state)])
