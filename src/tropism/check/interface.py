"""Laws of inputs and outputs: interface, spaces, finite-rewards, purity."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tropism.check.compare import difference, format_value, structure_of, to_host
from tropism.check.context import SHORT, CheckContext, StepRecord, compile_quickly, format_state
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
from tropism.core.environment import Environment
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Dict, Space, Tuple

NUM_RESETS = 8
SPACES = ("observation_space", "action_space")


def check_interface(context: CheckContext) -> Finding | None:
    if not isinstance(context.env, Environment):
        return Finding("env", f"{format_value(context.env)} is not an Environment; make(id) returns (env, params)")
    return (
        find_unhashable_field(context.env)
        or find_wrong_signature(context.env)
        or _check_identity(context.env)
        or _check_params(context)
        or _check_space_types(context)
        or _check_calls(context)
    )


def _check_identity(env: Environment) -> Finding | None:
    twin = copy.deepcopy(env)
    if hash(env) != hash(copy.copy(env)) or env != twin or hash(env) != hash(twin):
        return Finding("env", f"a copy of {format_value(env)} is not equal to it, or hashes differently")
    return None


def _check_params(context: CheckContext) -> Finding | None:
    for name, params in (("default_params()", context.env.default_params()), ("params", context.params)):
        if not isinstance(params, EnvParams):
            return Finding("default_params", f"{name} is {format_value(params)}, not an EnvParams")
    return None


def _check_space_types(context: CheckContext) -> Finding | None:
    for name in SPACES:
        found = find_wrong_space(name, getattr(context.env, name)(context.params))
        if found is not None:
            return found
    return None


def _check_calls(context: CheckContext) -> Finding | None:
    first = context.plain.reset(context.key(context.seed, 0))
    message = explain_reset(first) or _explain_time(context, first[1], 0)
    if message:
        return context.with_example(Finding("reset", message), context.seed, [])
    state = first[1]
    actions = context.actions(context.seed, 3)
    for time, action in enumerate(actions, 1):
        result = context.plain.step(context.key(context.seed, time), state, action)
        message = explain_step(result) or _explain_time(context, result[1], time)
        if message:
            return context.with_example(Finding("step", message), context.seed, actions[:time])
        state = result[1]
        if np.any(result[3]):
            break
    return None


def _explain_time(context: CheckContext, state: Any, expected: int) -> str | None:
    """Why `state.time` of a pure environment is wrong."""
    if not context.pure:
        return None
    message = explain_state(state)
    if message:
        return message
    time = jnp.asarray(state.time)
    if time.dtype == jnp.int32 and time.shape == () and int(time) == expected:
        return None
    return f"state.time is {format_value(time)} ({time.dtype}, shape {time.shape}), not {expected} (int32, shape ())"


def check_spaces(context: CheckContext) -> Finding | None:
    for name in SPACES:
        found = _check_space(name, context)
        if found is not None:
            return found
    return _check_first_obs(context) or context.find_smallest(_later_obs(context), context.num_steps)


def _check_space(name: str, context: CheckContext) -> Finding | None:
    build: Callable[[Any], Any] = getattr(context.env, name)
    space = build(context.params)
    if space != build(context.params):
        return Finding(name, f"returned {space!r} and then {build(context.params)!r}")
    samples = context.samples(space)
    for number, sample in enumerate(samples):
        if not space.contains(sample):
            return Finding(name, f"{space!r} does not contain its own sample {format_value(sample)} (seed {number})")
    if not context.pure:
        return None

    def build_traced(params: Any) -> Any:
        return build(params).contains(samples[0])

    found = attempt(lambda: compile_quickly(build_traced)(context.params) and None)
    return found and Finding(name, f"cannot be built under jit with params as an argument: {found.message}")


def _check_first_obs(context: CheckContext) -> Finding | None:
    space = context.env.observation_space(context.params)
    for seed in range(context.seed, context.seed + NUM_RESETS):
        obs = next(context.run(context.fast, seed, [])).obs
        message = explain_obs(space, obs, context.pure)
        if message:
            return context.with_example(Finding("reset", message), seed, [])
    return None


def explain_obs(space: Space, obs: Any, pure: bool, name: str = "observation") -> str | None:
    """Why an observation is not in its space, or has another dtype."""
    part = _explain_parts(space, obs, pure, name)
    if part is None and isinstance(space, Box) and isinstance(obs, np.ndarray | np.generic):
        part = _explain_array(space, obs, pure, name)
    if part is None and not space.contains(obs):
        return f"{name} {format_value(obs)} is not in {space!r}"
    return part


def _explain_parts(space: Space, obs: Any, pure: bool, name: str) -> str | None:
    """The same for the first wrong member of a Dict or Tuple observation with all its members."""
    if isinstance(space, Dict) and isinstance(obs, dict) and set(obs) == set(space.spaces):
        parts = [(part, obs[key], f"{name}[{key!r}]") for key, part in space.spaces.items()]
    elif isinstance(space, Tuple) and isinstance(obs, tuple) and len(obs) == len(space.spaces):
        parts = [(part, value, f"{name}[{i}]") for i, (part, value) in enumerate(zip(space.spaces, obs, strict=True))]
    else:
        return None
    messages = [explain_obs(part, value, pure, label) for part, value, label in parts]
    return next((message for message in messages if message), None)


def _explain_array(space: Box, obs: Any, pure: bool, name: str) -> str | None:
    if obs.shape != space.shape:
        return f"{name} has shape {obs.shape}, but {space!r} has shape {space.shape}"
    dtype = jax.dtypes.canonicalize_dtype(space.dtype) if pure else space.dtype
    if obs.dtype != dtype:
        advice = f"cast it with .astype({'jnp' if pure else 'np'}.{dtype}), or declare the space with its dtype"
        return f"{name} {format_value(obs)} has dtype {obs.dtype}, but {space!r} has dtype {dtype}; {advice}"
    return None


def _later_obs(context: CheckContext) -> Any:
    space = context.env.observation_space(context.params)
    model = context.samples(space)[0]

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        for time, record in enumerate(context.cached_run(context.fast, seed, actions)):
            message = explain_obs(space, record.obs, context.pure)
            if message:
                only_bounds = _is_only_out_of_bounds(record, model)
                message = f"step {time}: {message}"
                if not only_bounds:
                    return Finding("step", message)
                return Finding("step", f"{message}; state {format_state(record)}", "warned")
        return None

    return fails


def _is_only_out_of_bounds(record: StepRecord, model: Any) -> bool:
    """Whether an observation violates only the bounds of its space."""
    structure, leaves = structure_of(to_host(record.obs))
    expected, models = structure_of(model)
    if structure != expected or [shape for shape, _ in leaves] != [shape for shape, _ in models]:
        return False
    for leaf, like in zip(jax.tree.leaves(record.obs), jax.tree.leaves(model), strict=True):
        if not isinstance(leaf, np.ndarray | np.generic | int | float) or np.any(leaf != leaf):
            return False
        if jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype) != like.dtype:
            return False
    return True


def check_finite_rewards(context: CheckContext) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        for time, record in enumerate(context.cached_run(context.fast, seed, actions)):
            if time and not np.isfinite(record.reward):
                return Finding("step", f"step {time}: {explain_reward(record.reward)}")
        return None

    return context.find_smallest(fails, context.num_steps) or context.compute_once(find_endings).not_finite


def check_purity(context: CheckContext) -> Finding | None:
    """A host environment may change its state, but not its action and params."""

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        before = to_host(context.params)
        _, state = context.plain.reset(context.key(seed, 0))
        found = difference({"params": context.params}, {"params": before})
        if found:
            return Finding("reset", f"reset changed its input: {found}")
        for time, action in enumerate(actions, 1):
            inputs = {"params": context.params, "action": action} | ({"state": state} if context.pure else {})
            before = to_host(inputs)
            _, after, _, done, _ = context.plain.step(context.key(seed, time), state, action)
            found = difference(inputs, before)
            if found:
                return Finding("step", f"step {time} changed its input: {found}")
            state = after
            if done:
                break
        context.env.close(state)
        return None

    return context.find_smallest(fails, min(SHORT, 5))
