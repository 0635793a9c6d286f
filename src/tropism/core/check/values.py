"""Laws of what goes in and comes out: interface, spaces, flags, finite-rewards, purity."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.check.compare import difference, host, kind, spell
from tropism.core.check.subject import SHORT, Finding, Moment, Subject, attempt, in_words
from tropism.core.environment import Environment, EnvParams, flags
from tropism.core.spaces import Space

NUM_SAMPLES = 8


def check_interface(subject: Subject) -> Finding | None:
    if not isinstance(subject.env, Environment):
        return Finding("env", f"{spell(subject.env)} is not an Environment; make(id) returns (env, params)")
    return _check_identity(subject.env) or _check_params(subject) or _check_calls(subject)


def _check_identity(env: Environment) -> Finding | None:
    twin = copy.deepcopy(env)
    if hash(env) != hash(copy.copy(env)) or env != twin or hash(env) != hash(twin):
        return Finding("env", f"a copy of {spell(env)} is not equal to it, or hashes differently")
    return None


def _check_params(subject: Subject) -> Finding | None:
    for name, params in (("default_params()", subject.env.default_params()), ("params", subject.params)):
        if not isinstance(params, EnvParams):
            return Finding("default_params", f"{name} is {spell(params)}, not an EnvParams")
    return None


def _check_calls(subject: Subject) -> Finding | None:
    first = subject.plain.reset(subject.key(subject.seed, 0))
    if not isinstance(first, tuple) or len(first) != 2:
        return Finding("reset", f"returned {spell(first)}, not (obs, state) (seed {subject.seed}, actions [])")
    state, before = first[1], 0
    found = _check_time("reset", subject, state, 0, [])
    actions = subject.actions(subject.seed, 3)
    for step, action in enumerate(actions, 1):
        if found is not None:
            break
        result = subject.plain.step(subject.key(subject.seed, step), state, action)
        example = f"(seed {subject.seed}, actions {[subject.action_space.to_json(a) for a in actions[:step]]})"
        if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
            return Finding("step", f"returned {spell(result)}, not (obs, state, reward, done, info) {example}")
        state, before = result[1], before + 1
        if np.any(result[3]):
            break
        found = _check_time("step", subject, state, before, actions[:step])
    return found


def _check_time(place: str, subject: Subject, state: Any, expected: int, actions: list[Any]) -> Finding | None:
    if not subject.traced:
        return None
    time = jnp.asarray(state.time)
    if time.dtype == jnp.int32 and time.shape == () and int(time) == expected:
        return None
    shown = [subject.action_space.to_json(action) for action in actions]
    message = f"state.time is {spell(time)} ({time.dtype}, shape {time.shape}), not {expected} (int32, shape ())"
    return Finding(place, f"{message} (seed {subject.seed}, actions {shown})")


def check_spaces(subject: Subject) -> Finding | None:
    for name in ("observation_space", "action_space"):
        found = _check_space(name, subject)
        if found is not None:
            return found
    return _check_first_obs(subject) or subject.smallest(_later_obs(subject), subject.num_steps)


def _check_space(name: str, subject: Subject) -> Finding | None:
    build: Callable[[Any], Any] = getattr(subject.env, name)
    space = build(subject.params)
    if not isinstance(space, Space):
        return Finding(name, f"returned {spell(space)}, not a Space")
    if space != build(subject.params):
        return Finding(name, f"returned {space!r} and then {build(subject.params)!r}")
    samples = [space.sample(random.key(number)) for number in range(NUM_SAMPLES)]
    for number, sample in enumerate(samples):
        if not space.contains(sample):
            return Finding(name, f"{space!r} does not contain its own sample {spell(sample)} (seed {number})")
    if not subject.traced:
        return None

    def build_traced(params: Any) -> Any:
        return build(params).contains(samples[0])

    found = attempt(lambda: jax.jit(build_traced)(subject.params) and None)
    return found and Finding(name, f"cannot be built under jit with params as an argument: {found.message}")


def _check_first_obs(subject: Subject) -> Finding | None:
    space = subject.env.observation_space(subject.params)
    for seed in range(subject.seed, subject.seed + NUM_SAMPLES):
        obs = next(subject.run(subject.plain, seed, [])).obs
        if not space.contains(obs):
            return Finding("reset", f"observation {spell(obs)} is not in {space!r} (seed {seed}, actions [])")
    return None


def _later_obs(subject: Subject) -> Any:
    space = subject.env.observation_space(subject.params)
    model = space.sample(random.key(0))

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        for time, moment in enumerate(subject.run(subject.fast, seed, actions)):
            if not space.contains(moment.obs):
                message = f"step {time}: observation {spell(moment.obs)} is not in {space!r}"
                outside = _fits(moment, model)
                return Finding("step", f"{message}; state {in_words(moment)}" if outside else message, _status(outside))
        return None

    return fails


def _status(outside: bool) -> Any:
    return "warned" if outside else "failed"


def _fits(moment: Moment, model: Any) -> bool:
    """Whether an observation is like the members of its space in all but its bounds."""
    structure, leaves = kind(host(moment.obs))
    expected, models = kind(host(model))
    if structure != expected or [shape for shape, _ in leaves] != [shape for shape, _ in models]:
        return False
    for leaf, like in zip(jax.tree.leaves(moment.obs), jax.tree.leaves(model), strict=True):
        if not isinstance(leaf, np.ndarray | np.generic | int | float) or np.any(leaf != leaf):
            return False
        if not np.can_cast(np.asarray(leaf).dtype, np.asarray(like).dtype, "same_kind"):
            return False
    return True


def check_flags(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        first_info = None
        for time, moment in enumerate(_raw_steps(subject, seed, actions), 1):
            reward, done, info = moment
            first_info = info if first_info is None else first_info
            message = _check_outcome(subject, reward, done, info) or _check_info(subject, info, first_info)
            if message:
                return Finding("step", f"step {time}: {message}")
        return None

    return subject.smallest(fails)


def _raw_steps(subject: Subject, seed: int, actions: list[Any]) -> Any:
    """(reward, done, info) exactly as `step` returns them, uncopied."""
    _, state = subject.plain.reset(subject.key(seed, 0))
    for time, action in enumerate(actions, 1):
        action = jax.tree.map(jnp.asarray, action) if subject.traced else action
        _, state, reward, done, info = subject.plain.step(subject.key(seed, time), state, action)
        yield reward, done, info
        if np.any(done):
            break
    subject.env.close(state)


def _check_outcome(subject: Subject, reward: Any, done: Any, info: Any) -> str | None:
    real = isinstance(reward, float) or (subject.traced and getattr(reward, "dtype", None) == jnp.float32)
    real = real or (not subject.traced and isinstance(reward, int | np.number))
    if not real or np.shape(reward) != ():
        return f"reward is {_typed(reward)}, not a float32 scalar"
    if not _is_flag(done):
        return f"done is {_typed(done)}, not a bool scalar"
    terminated, truncated = flags(done, info)
    if not (_is_flag(terminated) and _is_flag(truncated)):
        return f"terminated is {_typed(terminated)} and truncated {_typed(truncated)}, not bool scalars"
    if (bool(terminated) or bool(truncated)) != bool(done):
        return f"terminated {bool(terminated)} or truncated {bool(truncated)}, but done {bool(done)}"
    return None


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (getattr(value, "dtype", None) == np.bool_ and np.shape(value) == ())


def _typed(value: Any) -> str:
    shape = f" of shape {np.shape(value)}" if np.shape(value) else ""
    return f"{spell(value)} ({getattr(value, 'dtype', type(value).__name__)}{shape})"


def _check_info(subject: Subject, info: Any, first: Any) -> str | None:
    same = kind(info) == kind(first) if subject.traced else set(info) == set(first)
    return None if same else f"info is {spell(info)}, unlike that of step 1, {spell(first)}"


def check_finite_rewards(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        for time, moment in enumerate(subject.run(subject.fast, seed, actions)):
            if time and not np.isfinite(moment.reward):
                return Finding("step", f"step {time}: reward is {spell(moment.reward)}")
        return None

    return subject.smallest(fails, subject.num_steps)


def check_purity(subject: Subject) -> Finding | None:
    """A host environment's state is its own to change; its action and params are not."""

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        before = host(subject.params)
        _, state = subject.plain.reset(subject.key(seed, 0))
        found = difference({"params": subject.params}, {"params": before})
        if found:
            return Finding("reset", f"reset changed its input: {found}")
        for time, action in enumerate(actions, 1):
            given = {"params": subject.params, "action": action} | ({"state": state} if subject.traced else {})
            before = host(given)
            _, after, _, done, _ = subject.plain.step(subject.key(seed, time), state, action)
            found = difference(given, before)
            if found:
                return Finding("step", f"step {time} changed its input: {found}")
            state = after
            if done:
                break
        subject.env.close(state)
        return None

    return subject.smallest(fails, min(SHORT, 5))
