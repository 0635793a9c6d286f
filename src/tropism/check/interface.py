"""Laws of inputs and outputs: interface, spaces, finite-rewards, purity."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tropism.check.compare import difference, format_value, to_host
from tropism.check.context import CheckContext, compile_quickly
from tropism.check.endings import check_fault, explain_reward, first_fault
from tropism.check.finding import Finding, attempt
from tropism.check.law import law, on_episodes, with_example
from tropism.check.mistakes import (
    explain_reset,
    explain_state,
    explain_step,
    find_unhashable_field,
    find_wrong_signature,
    find_wrong_space,
)
from tropism.check.report import Status
from tropism.core.environment import Environment
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Dict, Space, Tuple

NUM_RESETS = 8


@law("interface", "the methods return the declared types, and copies of the environment are equal")
def check_interface(context: CheckContext) -> Finding | None:
    env = context.env
    if not isinstance(env, Environment):
        return Finding("env", f"{format_value(env)} is not an Environment; make(id) returns (env, params)")
    return (
        find_unhashable_field(env)
        or find_wrong_signature(env)
        or _check_identity(env)
        or _check_params("default_params()", env.default_params())
        or _check_params("params", context.params)
        or find_wrong_space("observation_space", context.observation_space)
        or find_wrong_space("action_space", context.action_space)
        or _check_calls(context)
    )


def _check_identity(env: Environment) -> Finding | None:
    twin = copy.deepcopy(env)
    if hash(env) != hash(copy.copy(env)) or env != twin or hash(env) != hash(twin):
        return Finding("env", f"a copy of {format_value(env)} is not equal to it, or hashes differently")
    return None


def _check_params(name: str, params: Any) -> Finding | None:
    if isinstance(params, EnvParams):
        return None
    return Finding("default_params", f"{name} is {format_value(params)}, not an EnvParams")


def _check_calls(context: CheckContext) -> Finding | None:
    seed, actions = context.seed, context.actions(context.seed, 3)
    result, done = context.plain.reset(context.key(seed, 0)), False
    message = explain_reset(result) or _explain_time(context, result[1], 0)
    for time, action in enumerate(actions, 1):
        if message or np.any(done):
            break
        result = context.plain.step(context.key(seed, time), result[1], action)
        message = explain_step(result) or _explain_time(context, result[1], time)
        if message:
            return with_example(context, Finding("step", message), seed, actions[:time])
        done = result[3]
    return with_example(context, Finding("reset", message), seed, []) if message else None


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


@law("spaces", "spaces are constant and contain their samples and the observations", "interface")
def check_spaces(context: CheckContext) -> Finding | None:
    return (
        _check_space(context, "observation_space")
        or _check_space(context, "action_space")
        or _check_first_obs(context)
        or _check_later_obs(context)
    )


def _check_space(context: CheckContext, name: str) -> Finding | None:
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
    for seed in range(context.seed, context.seed + NUM_RESETS):
        (record,) = context.run(context.fast, seed, [])
        found = _check_obs(context.observation_space, record.obs, context.pure)
        if found is not None:
            return with_example(context, Finding("reset", found.message), seed, [])
    return None


@on_episodes(None)
def _check_later_obs(context: CheckContext, seed: int, actions: list[Any]) -> Finding | None:
    for time, record in enumerate(context.cached_run(context.fast, seed, actions)):
        found = _check_obs(context.observation_space, record.obs, context.pure)
        if found is not None:
            state = format_value([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(record.state)])
            shown = f"; state {state}" if found.status == "warned" else ""
            return found._replace(message=f"step {time}: {found.message}{shown}")
    return None


def _check_obs(space: Space, obs: Any, pure: bool, name: str = "observation") -> Finding | None:
    """Why an observation is not in its space, or has another dtype; a warning if it is only out of bounds."""
    found = [_check_obs(part, value, pure, f"{name}[{key!r}]") for key, part, value in _parts(space, obs)]
    wrong = [finding for finding in found if finding is not None]
    if wrong:
        return min(wrong, key=lambda finding: finding.status == "warned")
    if isinstance(space, Box) and isinstance(obs, np.ndarray | np.generic):
        if obs.shape != space.shape:
            return Finding("step", f"{name} has shape {obs.shape}, but {space!r} has shape {space.shape}")
        dtype = jax.dtypes.canonicalize_dtype(space.dtype) if pure else space.dtype
        if obs.dtype != dtype:
            advice = f"cast it with .astype({'jnp' if pure else 'np'}.{dtype}), or declare the space with its dtype"
            observed = f"{name} {format_value(obs)} has dtype {obs.dtype}, but {space!r} has dtype {dtype}"
            return Finding("step", f"{observed}; {advice}")
    if space.contains(obs):
        return None
    return Finding("step", f"{name} {format_value(obs)} is not in {space!r}", _out_of_space(space, obs))


def _parts(space: Space, obs: Any) -> list[tuple[Any, Space, Any]]:
    """`(key, space, value)` of the members of a Dict or Tuple observation, if it has all its members."""
    if isinstance(space, Dict) and isinstance(obs, dict) and set(obs) == set(space.spaces):
        return [(key, part, obs[key]) for key, part in space.spaces.items()]
    if isinstance(space, Tuple) and isinstance(obs, tuple) and len(obs) == len(space.spaces):
        return [(i, part, value) for i, (part, value) in enumerate(zip(space.spaces, obs, strict=True))]
    return []


def _out_of_space(space: Space, obs: Any) -> Status:
    """Numbers of the right shape and kind are only out of bounds."""
    is_number = isinstance(obs, np.ndarray | np.generic | int | float) and not np.any(obs != obs)
    has_kind = is_number and np.asarray(obs).dtype.kind == np.dtype(space.dtype).kind
    return "warned" if has_kind and np.shape(obs) == space.shape else "failed"


@law("finite-rewards", "every reward is a finite number", "spaces", "flags")
def check_finite_rewards(context: CheckContext) -> Finding | None:
    return on_episodes(None)(_check_rewards)(context) or check_fault(context, _check_rewards)


def _check_rewards(context: CheckContext, seed: int, actions: list[Any]) -> Finding | None:
    return first_fault(context.cached_run(context.fast, seed, actions), explain_reward)


@law("purity", "reset and step do not change their inputs", "spaces", "flags")
@on_episodes(5)
def check_purity(context: CheckContext, seed: int, actions: list[Any]) -> Finding | None:
    """A host environment may change its state, but not its action and params."""
    state = None
    for time, action in enumerate([None, *actions]):
        inputs = {"params": context.params, "action": action, "state": state if context.pure else None}
        before, key = to_host(inputs), context.key(seed, time)
        result = context.plain.step(key, state, action) if time else (*context.plain.reset(key), 0.0, False)
        found = difference(inputs, before)
        if found is not None:
            place, call = ("step", f"step {time}") if time else ("reset", "reset")
            return Finding(place, f"{call} changed its input: {found}")
        state, done = result[1], result[3]
        if done:
            break
    context.env.close(state)
    return None
