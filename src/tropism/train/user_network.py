"""Which network a training uses, and the checks of a user's own before anything is trained."""

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
from tropism.train.agent import Blueprint, first_memory, next_memory
from tropism.train.config import Config
from tropism.train.network import ActorCritic
from tropism.train.pixels import has_bytes, has_picture, is_picture

MADE = "Network(observation_space, action_space, *, key)"
CALLED = "network(obs, memory)"


def network_name(network: Any) -> str | None:
    """A network as a checkpoint records it: None for the built-in one, `module:Class` for a user's."""
    return f"{network.__module__}:{network.__qualname__}" if isinstance(network, type) else network


def blueprint(env: Environment, params: Any, config: Config, network: Any = None) -> Blueprint:
    """The built-in network, or `network`: a class, or `module:Class`."""
    # By their shapes alone: the numbers of a space may have to be compiled, which takes a tenth of a second.
    likes = eqx.filter_eval_shape(lambda: (env.observation_space(params), env.action_space(params)))
    outputs_shape(likes[1])  # refuses a space that PPO cannot act in
    if network is not None:
        return _own(network, env, params, config)
    options = (("hidden", config.hidden), ("recurrent", config.recurrent))
    space = env.observation_space(params) if has_bytes(likes[0]) else None
    if space is None or not has_picture(space):
        return Blueprint(ActorCritic, config.recurrent, options)
    if not is_picture(space):
        expected = "a picture alone, or no picture in it: combine a picture with other observations in --network"
        raise ValidationError("observation_space", space, expected)
    return Blueprint(ActorCritic, config.recurrent, options, space)


def _own(network: Any, env: Environment, params: Any, config: Config) -> Blueprint:
    kind = resolve("network", network, "module:Class") if isinstance(network, str) else network
    space, action_space = env.observation_space(params), env.action_space(params)
    obs = eqx.filter_eval_shape(lambda key: env.reset(key, params)[0], random.key(0))
    recurrent = bool(jax.tree.leaves(_check(kind, network_name(network) or "", obs, space, action_space)))
    if recurrent and config.num_envs % config.minibatches:
        expected = f"a divisor of num_envs, {config.num_envs}, because the network has a memory"
        raise ValidationError("minibatches", config.minibatches, expected)
    for name, default in (("recurrent", False), ("hidden", Config.hidden)):
        if vars(config)[name] != default:
            raise ValidationError(name, vars(config)[name], f"{default}: a network of your own has its own layers")
    return Blueprint(kind, recurrent, (), space, action_space)


def _check(kind: Any, name: str, obs: Any, space: Space, action_space: Space) -> Any:
    """The network's first memory, by shapes; a ValidationError where the network does not fit its environment."""
    if not isinstance(kind, type) or not issubclass(kind, eqx.Module):
        _refuse(name, "a class that derives from equinox.Module")
    made: Any = kind
    _check_call(made, name, MADE, space, action_space, key=None)

    def attempt(key: Any, obs: Any) -> Any:
        network: Any = made(space, action_space, key=key)
        if not callable(network):
            _refuse(name, f"a class whose instances are called as {CALLED}")
        memory = first_memory(network)
        _check_call(network, name, CALLED, obs, memory)
        result: Any = network(obs, memory)
        _check_result(name, memory, result, action_space)
        action = jnp.zeros((), jnp.int32) if isinstance(action_space, Discrete) else result[0]
        _check_memory(name, "remember(memory, action)", memory, next_memory(network, memory, action))
        return memory

    return eqx.filter_eval_shape(attempt, random.key(0), obs)


def _check_call(function: Callable[..., Any], name: str, form: str, *arguments: Any, **named: Any) -> None:
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError as error:
        _refuse(name, f"a class that is used as {form} ({error})")


def _check_result(name: str, memory: Any, result: Any, action_space: Space) -> None:
    if not isinstance(result, tuple) or len(result) != 3:
        _refuse(name, f"{CALLED} to return the tuple (outputs, value, memory), not {_form(result)}")
    outputs, value, after = result
    meaning = "the logits of" if isinstance(action_space, Discrete) else "the means of"
    for what, each, shape in (
        (f"outputs, {meaning} {action_space!r},", outputs, outputs_shape(action_space)),
        ("a value", value, ()),
    ):
        real = isinstance(each, jax.Array) and jnp.issubdtype(each.dtype, jnp.floating)
        if not real or each.shape != shape:
            _refuse(name, f"{what} of shape {shape} and a real dtype, not {_form(each)}")
    _check_memory(name, CALLED, memory, after)


def _check_memory(name: str, call: str, before: Any, after: Any) -> None:
    """Memories keep their shapes and dtypes from step to step."""
    if _form(before) == _form(after):
        return
    if not jax.tree.leaves(before):
        _refuse(name, f"a method memory() that returns the first memory, because {call} returns one: {_form(after)}")
    _refuse(name, f"{call} to return a memory like that of memory(), {_form(before)}, not {_form(after)}")


def _form(value: Any) -> str:
    """The shapes and dtypes of a value."""

    def form(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, jax.Array) else type(leaf).__name__

    leaves, structure = jax.tree.flatten(value)
    return str(structure.unflatten([form(leaf) for leaf in leaves])).replace("'", "")


def _refuse(name: str, expected: str) -> NoReturn:
    raise ValidationError("network", name, expected)
