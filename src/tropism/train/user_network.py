"""Selects the network of a training run, and checks user-defined networks before training starts."""

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import random

from tropism.core.environment import Environment
from tropism.core.resolve import resolve
from tropism.core.spaces import Discrete, Space
from tropism.errors import ValidationError
from tropism.train.actions import outputs_shape
from tropism.train.agent import Agent, NetworkSpec
from tropism.train.network import ActorCritic
from tropism.train.pixels import has_image, has_uint8, is_image

CONSTRUCTOR = "Network(observation_space, action_space, *, key)"
CALL = "network(obs, memory)"


def network_name(network: Any) -> str | None:
    """The name stored in a checkpoint: None for the built-in network, else `module:Class`."""
    return f"{network.__module__}:{network.__qualname__}" if isinstance(network, type) else network


def make_network_spec(env: Environment, params: Any, config: Any, network: Any = None) -> NetworkSpec:
    """The built-in network, or `network`: a class, or `module:Class`."""
    # Only shapes: computing the bounds of a space may need a compilation, which takes a tenth of a second.
    shapes = eqx.filter_eval_shape(lambda: (env.observation_space(params), env.action_space(params)))
    outputs_shape(shapes[1])  # rejects an unsupported action space
    if network is not None:
        return _check_user_network(network, env, params, config)
    options = (("hidden", config.hidden), ("recurrent", config.recurrent))
    space = env.observation_space(params) if has_uint8(shapes[0]) else None
    if space is None or not has_image(space):
        return NetworkSpec(ActorCritic, config.recurrent, options)
    if not is_image(space):
        expected = "an image alone, or no image: use --network to combine an image with other observations"
        raise ValidationError("observation_space", space, expected)
    return NetworkSpec(ActorCritic, config.recurrent, options, space)


def _check_user_network(network: Any, env: Environment, params: Any, config: Any) -> NetworkSpec:
    kind = resolve("network", network, "module:Class") if isinstance(network, str) else network
    space, action_space = env.observation_space(params), env.action_space(params)
    obs = eqx.filter_eval_shape(lambda key: env.reset(key, params)[0], random.key(0))
    recurrent = bool(jax.tree.leaves(_check(kind, network_name(network) or "", obs, space, action_space)))
    if recurrent and config.num_envs % config.minibatches:
        expected = f"a divisor of num_envs, {config.num_envs}, because the network has a memory"
        raise ValidationError("minibatches", config.minibatches, expected)
    for name in ("recurrent", "hidden"):
        value, default = vars(config)[name], vars(type(config))[name]
        if value != default:
            raise ValidationError(name, value, f"{default}: a user-defined network has its own layers")
    return NetworkSpec(kind, recurrent, (), space, action_space)


def _check(kind: Any, name: str, obs: Any, space: Space, action_space: Space) -> Any:
    """The shapes of the initial memory; a ValidationError if the network does not fit the environment."""
    if not isinstance(kind, type) or not issubclass(kind, eqx.Module):
        _reject(name, "a class that derives from equinox.Module")
    constructor: Any = kind
    _check_call(constructor, name, CONSTRUCTOR, space, action_space, key=None)

    def attempt(key: Any, obs: Any) -> Any:
        network: Any = constructor(space, action_space, key=key)
        if not callable(network):
            _reject(name, f"a class whose instances are called as {CALL}")
        agent = Agent(network, action_space)
        memory = agent.memory()
        _check_call(network, name, CALL, obs, memory)
        result: Any = network(obs, memory)
        _check_result(name, memory, result, action_space)
        action = jnp.zeros((), jnp.int32) if isinstance(action_space, Discrete) else result[0]
        _check_memory(name, "remember(memory, action)", memory, agent.remember(memory, action))
        return memory

    return eqx.filter_eval_shape(attempt, random.key(0), obs)


def _check_call(function: Callable[..., Any], name: str, form: str, *arguments: Any, **keywords: Any) -> None:
    try:
        inspect.signature(function).bind(*arguments, **keywords)
    except TypeError as error:
        _reject(name, f"a class that is used as {form} ({error})")


def _check_result(name: str, memory: Any, result: Any, action_space: Space) -> None:
    if not isinstance(result, tuple) or len(result) != 3:
        _reject(name, f"{CALL} to return the tuple (outputs, value, memory), not {_describe(result)}")
    outputs, value, after = result
    meaning = "the logits of" if isinstance(action_space, Discrete) else "the means of"
    for label, each, shape in (
        (f"outputs, {meaning} {action_space!r},", outputs, outputs_shape(action_space)),
        ("a value", value, ()),
    ):
        real = isinstance(each, jax.Array) and jnp.issubdtype(each.dtype, jnp.floating)
        if not real or each.shape != shape:
            _reject(name, f"{label} of shape {shape} and a real dtype, not {_describe(each)}")
    _check_memory(name, CALL, memory, after)


def _check_memory(name: str, call: str, before: Any, after: Any) -> None:
    """Reject a memory whose shapes or dtypes change from step to step."""
    if _describe(before) == _describe(after):
        return
    if not jax.tree.leaves(before):
        _reject(
            name, f"a method memory() that returns the initial memory, because {call} returns one: {_describe(after)}"
        )
    _reject(name, f"{call} to return a memory like that of memory(), {_describe(before)}, not {_describe(after)}")


def _describe(value: Any) -> str:
    """The shapes and dtypes of a value, as text."""

    def form(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, jax.Array) else type(leaf).__name__

    leaves, structure = jax.tree.flatten(value)
    return str(structure.unflatten([form(leaf) for leaf in leaves])).replace("'", "")


def _reject(name: str, expected: str) -> NoReturn:
    raise ValidationError("network", name, expected)
