"""Policies, which choose the actions of one agent."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jax import random

from tropism.core.arity import accepts
from tropism.core.environment import Environment
from tropism.core.episode import check_seed, seed_words
from tropism.core.spaces import Space
from tropism.core.spaces.space import is_integer
from tropism.errors import ValidationError

EXPECTED = (
    "a policy of one agent: init(key) -> memory and act(key, memory, obs) -> (action, memory), "
    "or a function obs -> action or (key, obs) -> action"
)
NO_MEMORY = ()


@runtime_checkable
class Policy(Protocol):
    """Chooses the actions of one agent; pure where its environment is.

    In a host environment the policy is not compiled, and its keys are plain ints, as the environment's: the episode's
    seed for `init`, then one derived from it for each step. Three members are optional. `host = True` declares a
    policy that runs in Python with any environment. `observes = "text"` declares one, also on the host, whose
    observations are texts (`describe`) and whose actions are texts to parse. `act_batch(key, memories, obs, num_envs)`
    is called by `rollout` in place of mapping `act` over the batch: for policies that are faster that way.
    """

    def init(self, key: Any) -> Any:
        """Return the memory at the start of an episode."""
        ...

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        """Return `(action, memory)`."""
        ...


class RandomPolicy(eqx.Module):
    """Samples the action space uniformly."""

    space: Space

    def init(self, key: Any) -> Any:
        return NO_MEMORY

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        return self.space.sample(jax_key(key)), memory

    def act_batch(self, key: Any, memories: Any, obs: Any, num_envs: int) -> tuple[Any, Any]:
        """Draw all actions from one key, which takes a fraction of the time of a key for each."""
        return self.space.sample(key, (num_envs,)), memories


class FunctionPolicy(eqx.Module):
    """A function of the observation, or of a key and the observation, as a policy without memory."""

    function: Callable[..., Any]
    takes_key: bool = eqx.field(static=True)

    def init(self, key: Any) -> Any:
        return NO_MEMORY

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        return self.function(key, obs) if self.takes_key else self.function(obs), memory


class HostFunctionPolicy:
    """A Python function of the observation; its method `reset(seed)`, if any, is called before each episode."""

    host = True

    def __init__(self, function: Any):
        self._function = function

    def init(self, key: Any) -> Any:
        match self._function:
            case object(reset=reset) if callable(reset):
                reset(key)
            case _:
                pass
        return NO_MEMORY

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        return self._function(obs), memory


def observes_text(policy: Policy) -> bool:
    return getattr(policy, "observes", None) == "text"


def runs_on_host(policy: Policy) -> bool:
    return getattr(policy, "host", False) or observes_text(policy)


def jax_key(key: Any) -> Any:
    """A JAX key as it is, and a plain int, as used on the host, as a JAX key."""
    return (
        random.wrap_key_data(jnp.asarray(seed_words(check_seed(key))), impl="threefry2x32") if is_integer(key) else key
    )


def random_policy(env: Environment, params: Any = None) -> RandomPolicy:
    """Return the policy that samples the action space of `env`."""
    return RandomPolicy(env.action_space(env.default_params() if params is None else params))


def as_policy(policy: Any) -> Policy:
    """Return a policy as it is, and a function as a policy; refuse anything else."""
    if isinstance(policy, Policy) and not inspect.isclass(policy):
        return policy
    if inspect.isclass(policy) or not callable(policy):
        raise ValidationError("policy", policy, EXPECTED)
    for count in (1, 2):
        if accepts(policy, count):
            return FunctionPolicy(policy, takes_key=count == 2)
    message = f"policy takes {inspect.signature(policy)}; expected {EXPECTED}"
    raise ValidationError("policy", policy, EXPECTED, message)


def check_result(policy: Any, result: Any) -> tuple[Any, Any]:
    """Return what `act` returned, which must be a pair."""
    if not isinstance(result, tuple | list) or len(result) != 2:
        message = f"act returned a {type(result).__name__}; expected (action, memory)"
        raise ValidationError("policy", policy, EXPECTED, message)
    action, memory = result
    return action, memory
