"""Updates of several agents at once, compiled, for any algorithm."""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import random

from tropism.core.compiled.options import quick_options
from tropism.core.devices import check_divisible, replicate, use_devices
from tropism.train.algorithm import Algorithm, UpdateMetrics
from tropism.train.faults import NO_FAULT, Fault

SHORT_TRAINING = 1_000_000  # steps of all agents; below, a faster compilation saves more than a faster program


def init_agents(algorithm: Algorithm, key: Any, count: int) -> Any:
    """The state of `count` agents before the first update; `key` is raw key data."""
    return _map_agents(algorithm.init, random.split(random.wrap_key_data(key), count))


def init_agents_compiled(algorithm: Algorithm, key: Any, count: int) -> Any:
    """`init_agents`, compiled without optimization, because it runs once."""
    return _compile(init_agents, 0)(algorithm, key, count)


def run_updates(algorithm: Algorithm, state: Any, updates: int, devices: Any = None) -> tuple[Any, UpdateMetrics]:
    """Run updates of all agents in parallel and return the metrics of each; compiled once for any number of updates.

    The environments of each agent are spread over `devices`, as in `rollout`.
    """
    is_short = algorithm.config.total_steps * _num_agents(state) <= SHORT_TRAINING
    update = _compile(_update, 1 if is_short else None)
    metrics: list[UpdateMetrics] = []
    with use_devices(devices):
        check_divisible("num_envs", algorithm.config.num_envs)
        for _ in range(updates):
            state, each = update(algorithm, state)
            metrics.append(each)
    return state, _stack_metrics(metrics)


def _stack_metrics(metrics: list[UpdateMetrics]) -> UpdateMetrics:
    """Metrics on the host, (agents, updates, …); without a fault, only its key is fetched."""

    def stack(values: Any) -> Any:
        return jax.tree.map(lambda *each: np.stack(each, 1), *values)

    fault = Fault(stack([each.fault.key for each in metrics]), None, None)
    if (fault.key != NO_FAULT).any():
        fault = stack([each.fault for each in metrics])
    return stack([each._replace(fault=None) for each in metrics])._replace(fault=fault)


@cache
def _compile(function: Callable[..., Any], level: int | None) -> Callable[..., Any]:
    """Compile with an optimization level, by default XLA's."""
    options = {} if level is None else quick_options(level)
    return eqx.filter_jit(function, compiler_options=options)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]  passed on to `jax.jit`


def _update(algorithm: Algorithm, state: Any) -> tuple[Any, UpdateMetrics]:
    state, metrics = _map_agents(algorithm.update, state)
    return state, replicate(metrics)


def _map_agents(function: Callable[[Any], Any], agents: Any) -> Any:
    """`vmap`, except for a single agent: a batch of one compiles and runs slower."""
    if _num_agents(agents) > 1:
        return eqx.filter_vmap(function)(agents)
    result = function(jax.tree.map(lambda leaf: leaf[0], agents))
    return jax.tree.map(lambda leaf: leaf[None], result)


def _num_agents(agents: Any) -> int:
    return len(jax.tree.leaves(agents)[0])
