"""Compiled rollouts: many environments, many steps, one call."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tropism.core.compiled.reset_where import Restarts
from tropism.core.devices import check_divisible, use_devices
from tropism.core.environment import Environment
from tropism.core.params import override
from tropism.core.rollout.choice import RolloutEngine, Run, choose_run
from tropism.core.rollout.plan import RolloutPlan, Transition
from tropism.core.rollout.policy import Policy, as_policy, jax_key
from tropism.core.rollout.scan import Rollout
from tropism.core.spaces.space import check_count, check_option
from tropism.errors import ValidationError

REPORTS = 20  # how often a rollout with a progress bar reports


def rollout(
    env: Environment,
    policy: Policy | Callable[..., Any],
    key: Any,
    num_envs: int,
    num_steps: int,
    *,
    params: Any = None,
    collect: bool = True,
    reduce: Callable[[Transition], Any] | None = None,
    reproducible: bool = False,
    restarts: Restarts = "auto",
    engine: Any = "auto",
    devices: Any = None,
    progress: bool | Callable[[int, int], None] = False,
) -> Rollout:
    """Step `num_envs` environments `num_steps` times, restarting each as its episode ends.

    `policy` is a pure `Policy`, or a function `obs -> action` or `(key, obs) -> action`, of one environment;
    its memory is reset when an episode ends. `collect=False` keeps no transitions; `reduce` maps each
    Transition to a pytree, whose sum over time (`totals`) replaces the episode statistics. All randomness
    comes from `key`, one key per step; with `reproducible=True`, environment i equals a `Session` with
    the seed `key + i` (an int or a key).
    `engine="native"` runs all steps as machine code on the CPU; `auto` does so in long rollouts if this is verified to
    give the bits of XLA. `engine="fused"` runs them as one GPU kernel; `auto` does so if no transitions are collected
    and the kernel is verified to give XLA's results to rounding.
    `devices="all"` spreads the environments over all devices; a list, over those.
    `progress=True` draws a bar on standard error; a function is called with (steps done, total steps).
    """
    num_envs, num_steps = check_count("num_envs", num_envs), check_count("num_steps", num_steps)
    check_option("restarts", restarts, Restarts)
    check_option("engine", engine, RolloutEngine)
    if not isinstance(env, Environment) or not env.pure:
        raise ValidationError("env", env, "a pure environment; step a host environment with Session")
    params = override(env.default_params(), {} if params is None else params)
    params = jax.tree.map(jnp.asarray, params)
    key = jax_key(key)
    plan = RolloutPlan(env, as_policy(policy), num_envs, collect, reduce, reproducible, restarts)
    with use_devices(devices):
        check_divisible("num_envs", num_envs)
        return _run(plan, choose_run(plan, key, params, engine, num_steps), key, params, num_steps, progress)


def _run(plan: RolloutPlan, run: Run, key: Any, params: Any, num_steps: int, progress: Any) -> Rollout:
    carry: Any = None
    pieces: list[Any] = []
    for start, length in _segments(num_steps, progress):
        last = start + length == num_steps
        carry, piece = run(plan, carry, key, params, jnp.int32(start), length, start == 0, last)
        pieces.append(piece)
        _report(progress, carry, start + length, num_steps)
    transitions = pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *parts: jnp.concatenate(parts), *pieces)
    return carry._replace(transitions=transitions if plan.collect else None)


def _segments(num_steps: int, progress: Any) -> list[tuple[int, int]]:
    length = -(-num_steps // REPORTS) if progress else num_steps
    return [(start, min(length, num_steps - start)) for start in range(0, num_steps, length)]


def _report(progress: Any, carry: Any, done: int, total: int) -> None:
    if not progress:
        return
    jax.block_until_ready(carry)
    if callable(progress):
        progress(done, total)
        return
    filled = 40 * done // total
    end = "\n" if done == total else ""
    sys.stderr.write(f"\rrollout [{'#' * filled}{'.' * (40 - filled)}] {done}/{total} steps{end}")
    sys.stderr.flush()
