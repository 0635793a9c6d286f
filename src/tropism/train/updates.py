"""Updates of several agents at once, compiled, for any algorithm."""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.compiled.options import quick_options
from tropism.core.devices import check_divisible, replicate, use_devices
from tropism.train.algorithm import Algorithm, UpdateMetrics
from tropism.train.faults import NO_FAULT, Fault

SHORT_TRAINING = 1_000_000  # steps of an agent; below, a faster compilation saves more than a faster program
ACCELERATOR_WIDTH = 8  # agents in one program


def init_agents(algorithm: Algorithm, keys: Any) -> Any:
    """The state of one agent for each key, before the first update; `keys` are raw key data."""
    return _map_agents(algorithm.init, random.wrap_key_data(keys))


def init_agents_compiled(algorithm: Algorithm, keys: Any, width: int | None = None) -> Any:
    """`init_agents`, compiled without optimization, because it runs once."""
    chunks = _split_agents(keys, width)
    return _join_agents([_compile(init_agents, 0)(algorithm, chunk) for chunk in chunks], len(keys))


def run_updates(
    algorithm: Algorithm, state: Any, updates: int, devices: Any = None, width: int | None = None
) -> tuple[Any, UpdateMetrics]:
    """Run updates of all agents and return the metrics of each; compiled once for any number of updates and agents.

    The environments of each agent are spread over `devices`, as in `rollout`. A program updates `width` agents, by
    default a number that depends on the hardware alone: rounding differs between programs, so the result for a seed
    would otherwise depend on how many are trained together.
    """
    is_short = algorithm.config.total_steps <= SHORT_TRAINING
    update = _compile(_update, 1 if is_short else None)
    metrics: list[list[UpdateMetrics]] = []
    chunks = _split_agents(state, width)
    with use_devices(devices):
        check_divisible("num_envs", algorithm.config.num_envs)
        for _ in range(updates):
            chunks, each = zip(*[update(algorithm, chunk) for chunk in chunks], strict=True)
            metrics.append(list(each))
    count = _num_agents(state)
    return _join_agents(list(chunks), count), _stack_metrics(metrics, count)


def _split_agents(agents: Any, width: int | None) -> list[Any]:
    """Chunks of `width` agents; the last one is filled with copies of the last agent."""
    count, width = _num_agents(agents), width or _default_width()
    if count == width:
        return [agents]
    chunks = [np.minimum(np.arange(start, start + width), count - 1) for start in range(0, count, width)]
    return [jax.tree.map(lambda leaf, chunk=chunk: leaf[chunk], agents) for chunk in chunks]


def _join_agents(chunks: list[Any], count: int) -> Any:
    """The first `count` agents of all chunks."""
    if len(chunks) == 1 and _num_agents(chunks[0]) == count:
        return chunks[0]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[:count], *chunks)


def _default_width() -> int:
    """On a CPU, several agents in one program take as long as one after another."""
    return 1 if jax.default_backend() == "cpu" else ACCELERATOR_WIDTH


def _stack_metrics(metrics: list[list[UpdateMetrics]], count: int) -> UpdateMetrics:
    """Metrics on the host, (agents, updates, …), from those of the chunks of each update; without a fault, only its
    key is fetched."""

    def stack(values: list[list[Any]]) -> Any:
        joined = [jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *chunks) for chunks in values]
        return jax.tree.map(lambda *each: np.stack(each, 1), *joined)

    fault = Fault(stack([[each.fault.key for each in chunks] for chunks in metrics]), None, None)
    if (fault.key != NO_FAULT).any():
        fault = stack([[each.fault for each in chunks] for chunks in metrics])
    return stack([[each._replace(fault=None) for each in chunks] for chunks in metrics])._replace(fault=fault)


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
