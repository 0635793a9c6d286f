"""Laws of what goes in and comes out: interface, spaces, finite-rewards, purity."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tropism.check.compare import difference, host, kind, spell
from tropism.check.context import SHORT, Moment, Subject, compile_quickly, in_words
from tropism.check.endings import explain_reward, find_endings
from tropism.check.finding import Finding, attempt
from tropism.check.mistakes import (
    explain_reset,
    explain_state,
    explain_step,
    find_unhashable_field,
    find_wrong_signature,
    find_wrong_space,
)
from tropism.core.environment import Environment, EnvParams
from tropism.core.spaces import Box, Dict, Space, Tuple

NUM_RESETS = 8
SPACES = ("observation_space", "action_space")


def check_interface(subject: Subject) -> Finding | None:
    if not isinstance(subject.env, Environment):
        return Finding("env", f"{spell(subject.env)} is not an Environment; make(id) returns (env, params)")
    return (
        find_unhashable_field(subject.env)
        or find_wrong_signature(subject.env)
        or _check_identity(subject.env)
        or _check_params(subject)
        or _check_space_types(subject)
        or _check_calls(subject)
    )


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


def _check_space_types(subject: Subject) -> Finding | None:
    for name in SPACES:
        found = find_wrong_space(name, getattr(subject.env, name)(subject.params))
        if found is not None:
            return found
    return None


def _check_calls(subject: Subject) -> Finding | None:
    first = subject.plain.reset(subject.key(subject.seed, 0))
    message = explain_reset(first) or _explain_time(subject, first[1], 0)
    if message:
        return subject.with_example(Finding("reset", message), subject.seed, [])
    state = first[1]
    actions = subject.actions(subject.seed, 3)
    for time, action in enumerate(actions, 1):
        result = subject.plain.step(subject.key(subject.seed, time), state, action)
        message = explain_step(result) or _explain_time(subject, result[1], time)
        if message:
            return subject.with_example(Finding("step", message), subject.seed, actions[:time])
        state = result[1]
        if np.any(result[3]):
            break
    return None


def _explain_time(subject: Subject, state: Any, expected: int) -> str | None:
    """Why the clock of a pure environment's state is wrong."""
    if not subject.traced:
        return None
    message = explain_state(state)
    if message:
        return message
    time = jnp.asarray(state.time)
    if time.dtype == jnp.int32 and time.shape == () and int(time) == expected:
        return None
    return f"state.time is {spell(time)} ({time.dtype}, shape {time.shape}), not {expected} (int32, shape ())"


def check_spaces(subject: Subject) -> Finding | None:
    for name in SPACES:
        found = _check_space(name, subject)
        if found is not None:
            return found
    return _check_first_obs(subject) or subject.smallest(_later_obs(subject), subject.num_steps)


def _check_space(name: str, subject: Subject) -> Finding | None:
    build: Callable[[Any], Any] = getattr(subject.env, name)
    space = build(subject.params)
    if space != build(subject.params):
        return Finding(name, f"returned {space!r} and then {build(subject.params)!r}")
    samples = subject.samples(space)
    for number, sample in enumerate(samples):
        if not space.contains(sample):
            return Finding(name, f"{space!r} does not contain its own sample {spell(sample)} (seed {number})")
    if not subject.traced:
        return None

    def build_traced(params: Any) -> Any:
        return build(params).contains(samples[0])

    found = attempt(lambda: compile_quickly(build_traced)(subject.params) and None)
    return found and Finding(name, f"cannot be built under jit with params as an argument: {found.message}")


def _check_first_obs(subject: Subject) -> Finding | None:
    space = subject.env.observation_space(subject.params)
    for seed in range(subject.seed, subject.seed + NUM_RESETS):
        obs = next(subject.run(subject.fast, seed, [])).obs
        message = explain_obs(space, obs, subject.traced)
        if message:
            return subject.with_example(Finding("reset", message), seed, [])
    return None


def explain_obs(space: Space, obs: Any, traced: bool, name: str = "observation") -> str | None:
    """Why an observation is not in its space, or not of the dtype that its space has."""
    part = _explain_parts(space, obs, traced, name)
    if part is None and isinstance(space, Box) and isinstance(obs, np.ndarray | np.generic):
        part = _explain_array(space, obs, traced, name)
    if part is None and not space.contains(obs):
        return f"{name} {spell(obs)} is not in {space!r}"
    return part


def _explain_parts(space: Space, obs: Any, traced: bool, name: str) -> str | None:
    """The same of the first wrong member of a Dict or Tuple whose members are there."""
    if isinstance(space, Dict) and isinstance(obs, dict) and set(obs) == set(space.spaces):
        parts = [(part, obs[key], f"{name}[{key!r}]") for key, part in space.spaces.items()]
    elif isinstance(space, Tuple) and isinstance(obs, tuple) and len(obs) == len(space.spaces):
        parts = [(part, value, f"{name}[{i}]") for i, (part, value) in enumerate(zip(space.spaces, obs, strict=True))]
    else:
        return None
    messages = [explain_obs(part, value, traced, label) for part, value, label in parts]
    return next((message for message in messages if message), None)


def _explain_array(space: Box, obs: Any, traced: bool, name: str) -> str | None:
    if obs.shape != space.shape:
        return f"{name} has shape {obs.shape}, but {space!r} has shape {space.shape}"
    dtype = jax.dtypes.canonicalize_dtype(space.dtype) if traced else space.dtype
    if obs.dtype != dtype:
        advice = f"cast it with .astype({'jnp' if traced else 'np'}.{dtype}), or declare the space with its dtype"
        return f"{name} {spell(obs)} has dtype {obs.dtype}, but {space!r} has dtype {dtype}; {advice}"
    return None


def _later_obs(subject: Subject) -> Any:
    space = subject.env.observation_space(subject.params)
    model = subject.samples(space)[0]

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        for time, moment in enumerate(subject.recorded(subject.fast, seed, actions)):
            message = explain_obs(space, moment.obs, subject.traced)
            if message:
                outside = _fits(moment, model)
                message = f"step {time}: {message}"
                return Finding("step", f"{message}; state {in_words(moment)}" if outside else message, _status(outside))
        return None

    return fails


def _status(outside: bool) -> Any:
    return "warned" if outside else "failed"


def _fits(moment: Moment, model: Any) -> bool:
    """Whether an observation is like the members of its space in all but its bounds."""
    structure, leaves = kind(host(moment.obs))
    expected, models = kind(model)
    if structure != expected or [shape for shape, _ in leaves] != [shape for shape, _ in models]:
        return False
    for leaf, like in zip(jax.tree.leaves(moment.obs), jax.tree.leaves(model), strict=True):
        if not isinstance(leaf, np.ndarray | np.generic | int | float) or np.any(leaf != leaf):
            return False
        if jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype) != like.dtype:
            return False
    return True


def check_finite_rewards(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        for time, moment in enumerate(subject.recorded(subject.fast, seed, actions)):
            if time and not np.isfinite(moment.reward):
                return Finding("step", f"step {time}: {explain_reward(moment.reward)}")
        return None

    return subject.smallest(fails, subject.num_steps) or subject.once(find_endings).not_finite


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
