"""The law spaces: they contain their samples, and the observations."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from tropism.check.compare import format_value
from tropism.check.context import CheckContext, compile_quickly, draw
from tropism.check.law import example, law, on_episodes
from tropism.check.law_error import LawError, attempt
from tropism.check.report import Status
from tropism.core.spaces import Box, Space
from tropism.core.spaces.composite import leaf_values

NUM_SAMPLES = 8
NUM_RESETS = 8


@law("spaces", "spaces are constant and contain their samples and the observations", "interface")
def check_spaces(context: CheckContext) -> None:
    _check_space(context, "observation_space")
    _check_space(context, "action_space")
    for seed in range(context.seed, context.seed + NUM_RESETS):
        with example(context, seed, []):
            _check_obs(context, seed, [])
    on_episodes(None)(_check_obs)(context)


def _check_space(context: CheckContext, name: str) -> None:
    build: Callable[[Any], Any] = getattr(context.env, name)
    space = build(context.params)
    if space != build(context.params):
        raise LawError(name, f"returned {space!r} and then {build(context.params)!r}")
    samples = draw(context, space, context.seed, NUM_SAMPLES)
    for sample in samples:
        if not space.contains(sample):
            reason = attempt(partial(space.coerce, sample, type(sample).__name__))  # names the field of a message
            because = "" if reason is None else f": {reason.message}"
            raise LawError(name, f"{space!r} does not contain its own sample {format_value(sample)}{because}")
    if context.pure:
        traced = compile_quickly(lambda params: build(params).contains(samples[0]))
        found = attempt(partial(traced, context.params))
        if found is not None:
            raise LawError(name, f"cannot be built under jit with params as an argument: {found.message}")


def _check_obs(context: CheckContext, seed: int, actions: list[Any]) -> None:
    """Later in an episode, an observation out of bounds is a warning with the state that led to it."""
    for time, record in enumerate(context.cached_run(context.fast, seed, actions)):
        leaves = leaf_values(context.observation_space, record.obs, "observation")
        found = [failure for leaf in leaves if (failure := _explain_obs(*leaf, context.pure)) is not None]
        if found:
            message, status = min(found, key=lambda failure: failure[1] == "warned")
            if not time:
                raise LawError("reset", message)
            state = format_value([np.asarray(leaf).tolist() for leaf in jax.tree.leaves(record.state)])
            shown = f"; state {state}" if status == "warned" else ""
            raise LawError("step", f"step {time}: {message}{shown}", status)


def _explain_obs(name: str, space: Space, obs: Any, pure: bool) -> tuple[str, Status] | None:
    """Why an observation is not in its space, or has another dtype; a warning if it is only out of bounds."""
    if isinstance(space, Box) and isinstance(obs, np.ndarray | np.generic):
        if obs.shape != space.shape:
            return f"{name} has shape {obs.shape}, but {space!r} has shape {space.shape}", "failed"
        dtype = jax.dtypes.canonicalize_dtype(space.dtype) if pure else space.dtype
        if obs.dtype != dtype:
            advice = f"cast it with .astype({'jnp' if pure else 'np'}.{dtype}), or declare the space with its dtype"
            observed = f"{name} {format_value(obs)} has dtype {obs.dtype}, but {space!r} has dtype {dtype}"
            return f"{observed}; {advice}", "failed"
    if space.contains(obs):
        return None
    is_number = isinstance(obs, np.ndarray | np.generic | int | float) and not np.any(obs != obs)
    has_kind = is_number and np.asarray(obs).dtype.kind == np.dtype(space.dtype).kind
    in_shape = has_kind and np.shape(obs) == space.shape
    return f"{name} {format_value(obs)} is not in {space!r}", "warned" if in_shape else "failed"
