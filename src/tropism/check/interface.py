"""Laws of inputs and outputs: interface, spaces, finite-rewards, purity."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tropism.check.compare import difference, format_value, layout, to_host
from tropism.check.context import CheckContext, compile_quickly
from tropism.check.endings import check_fault, check_records, explain_reward
from tropism.check.law import example, law, on_episodes
from tropism.check.law_error import LawError, attempt
from tropism.check.mistakes import check_fields, check_reset, check_signatures, check_space_type, check_step
from tropism.check.report import Status
from tropism.core.environment import Environment, EnvState
from tropism.core.params import EnvParams
from tropism.core.spaces import Box, Dict, Space, Tuple

NUM_RESETS = 8


@law("interface", "the methods return the declared types, and copies of the environment are equal")
def check_interface(context: CheckContext) -> None:
    env = context.env
    if not isinstance(env, Environment):
        raise LawError("env", f"{format_value(env)} is not an Environment; make(id) returns (env, params)")
    check_fields(env)
    check_signatures(env)
    twin = copy.deepcopy(env)
    if hash(env) != hash(copy.copy(env)) or env != twin or hash(env) != hash(twin):
        raise LawError("env", f"a copy of {format_value(env)} is not equal to it, or hashes differently")
    for name, params in (("default_params()", env.default_params()), ("params", context.params)):
        if not isinstance(params, EnvParams):
            raise LawError("default_params", f"{name} is {format_value(params)}, not an EnvParams")
    check_space_type("observation_space", context.observation_space)
    check_space_type("action_space", context.action_space)
    _check_calls(context)


def _check_calls(context: CheckContext) -> None:
    seed, actions = context.seed, context.actions(context.seed, 3)
    with example(context, seed, []):
        result = context.plain.reset(context.key(seed, 0))
        check_reset(result)
        _check_state("reset", context, result[1], 0)
    for time, action in enumerate(actions, 1):
        with example(context, seed, actions[:time]):
            result = context.plain.step(context.key(seed, time), result[1], action)
            check_step(result)
            _check_state("step", context, result[1], time)
        if np.any(result[3]):
            break


def _check_state(place: str, context: CheckContext, state: Any, expected: int) -> None:
    """The state of a pure environment is an EnvState, and `state.time` counts the steps."""
    if not context.pure:
        return
    if not isinstance(state, EnvState):
        advice = "make it a subclass of EnvState, which counts `time`"
        raise LawError(place, f"the state is {layout(state)}, not an EnvState; {advice}")
    time = jnp.asarray(state.time)
    if time.dtype != jnp.int32 or time.shape != () or int(time) != expected:
        observed = f"state.time is {format_value(time)} ({time.dtype}, shape {time.shape})"
        raise LawError(place, f"{observed}, not {expected} (int32, shape ())")


@law("spaces", "spaces are constant and contain their samples and the observations", "interface")
def check_spaces(context: CheckContext) -> None:
    _check_space(context, "observation_space")
    _check_space(context, "action_space")
    _check_first_obs(context)
    _check_later_obs(context)


def _check_space(context: CheckContext, name: str) -> None:
    build: Callable[[Any], Any] = getattr(context.env, name)
    space = build(context.params)
    if space != build(context.params):
        raise LawError(name, f"returned {space!r} and then {build(context.params)!r}")
    samples = context.samples(space)
    for number, sample in enumerate(samples):
        if not space.contains(sample):
            reason = attempt(partial(space.coerce, sample, type(sample).__name__))  # names the field of a message
            because = "" if reason is None else f": {reason.message}"
            message = f"{space!r} does not contain its own sample {format_value(sample)} (seed {number}){because}"
            raise LawError(name, message)
    if context.pure:
        traced = compile_quickly(lambda params: build(params).contains(samples[0]))
        found = attempt(partial(traced, context.params))
        if found is not None:
            raise LawError(name, f"cannot be built under jit with params as an argument: {found.message}")


def _check_first_obs(context: CheckContext) -> None:
    for seed in range(context.seed, context.seed + NUM_RESETS):
        (record,) = context.run(context.fast, seed, [])
        found = _explain_obs(context.observation_space, record.obs, context.pure)
        if found is not None:
            with example(context, seed, []):
                raise LawError("reset", found.message)


@on_episodes(None)
def _check_later_obs(context: CheckContext, seed: int, actions: list[Any]) -> None:
    for time, record in enumerate(context.cached_run(context.fast, seed, actions)):
        found = _explain_obs(context.observation_space, record.obs, context.pure)
        if found is not None:
            state = format_value([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(record.state)])
            shown = f"; state {state}" if found.status == "warned" else ""
            raise LawError("step", f"step {time}: {found.message}{shown}", found.status)


def _explain_obs(space: Space, obs: Any, pure: bool, name: str = "observation") -> LawError | None:
    """Why an observation is not in its space, or has another dtype; a warning if it is only out of bounds."""
    found = [_explain_obs(part, value, pure, f"{name}[{key!r}]") for key, part, value in _parts(space, obs)]
    wrong = [failure for failure in found if failure is not None]
    if wrong:
        return min(wrong, key=lambda failure: failure.status == "warned")
    if isinstance(space, Box) and isinstance(obs, np.ndarray | np.generic):
        if obs.shape != space.shape:
            return LawError("step", f"{name} has shape {obs.shape}, but {space!r} has shape {space.shape}")
        dtype = jax.dtypes.canonicalize_dtype(space.dtype) if pure else space.dtype
        if obs.dtype != dtype:
            advice = f"cast it with .astype({'jnp' if pure else 'np'}.{dtype}), or declare the space with its dtype"
            observed = f"{name} {format_value(obs)} has dtype {obs.dtype}, but {space!r} has dtype {dtype}"
            return LawError("step", f"{observed}; {advice}")
    if space.contains(obs):
        return None
    return LawError("step", f"{name} {format_value(obs)} is not in {space!r}", _out_of_space(space, obs))


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
def check_finite_rewards(context: CheckContext) -> None:
    on_episodes(None)(_check_rewards)(context)
    check_fault(context, _check_rewards)


def _check_rewards(context: CheckContext, seed: int, actions: list[Any]) -> None:
    check_records(context.cached_run(context.fast, seed, actions), explain_reward)


@law("purity", "reset and step do not change their inputs", "spaces", "flags")
@on_episodes(5)
def check_purity(context: CheckContext, seed: int, actions: list[Any]) -> None:
    """A host environment may change its state, but not its action and params."""
    state = None
    for time, action in enumerate([None, *actions]):
        inputs = {"params": context.params, "action": action, "state": state if context.pure else None}
        before, key = to_host(inputs), context.key(seed, time)
        result = context.plain.step(key, state, action) if time else (*context.plain.reset(key), 0.0, False)
        found = difference(inputs, before)
        if found is not None:
            place, call = ("step", f"step {time}") if time else ("reset", "reset")
            raise LawError(place, f"{call} changed its input: {found}")
        state, done = result[1], result[3]
        if done:
            break
    context.env.close(state)
