"""Policies by name that need no training: random actions, an environment's strategies, a user's own."""

import inspect
from pathlib import Path
from typing import Any

from tropism.core.arity import accepts
from tropism.core.environment import Environment
from tropism.core.resolve import resolve
from tropism.core.rollout.policy import HostFunctionPolicy, Policy, RandomPolicy, as_policy


def named_policy(name: str, env: Environment, params: Any) -> Policy | None:
    """The policy of this name for an environment; None if it is another kind of name."""
    if name == "random":
        return RandomPolicy(env.action_space(params))
    strategies = env.strategies(params)
    if name in strategies:
        return strategies[name]()
    return user_policy(name) if is_user_policy(name) else None


def is_user_policy(name: str) -> bool:
    return ":" in name and not name.startswith("llm:") and not Path(name).exists()


def user_policy(name: str) -> Policy:
    """The policy at `module:name`: a `Policy` or its class, or a function or the class of a callable object.

    A function of the observation alone runs on the host, so that it may use NumPy and keep a state.
    """
    target = resolve("policy", name, "module:function")
    target = target() if inspect.isclass(target) else target
    if isinstance(target, Policy) or not callable(target) or not accepts(target, 1):
        return as_policy(target)
    return HostFunctionPolicy(target)
