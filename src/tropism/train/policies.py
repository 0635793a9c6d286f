"""Policies by name: trained agents, strategies, random actions, user functions, language models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from tropism.core.arity import accepts
from tropism.core.environment import Environment
from tropism.core.episode import seed_words
from tropism.core.resolve import resolve
from tropism.core.rollout.episodes import policy_key
from tropism.core.rollout.policy import Policy, RandomPolicy, as_policy, check_result
from tropism.core.spaces import Dict, Space, Tuple
from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ValidationError
from tropism.plume.strategies import Strategy
from tropism.plume.strategies.catalog import NAMES, make_strategy
from tropism.train import checkpoint
from tropism.train.language_model import LanguageModel
from tropism.train.run import CHECKPOINT
from tropism.train.runner import HostFunctionPolicy, HostPolicy, StepOutcome

POLICY_FORMS = (
    f"random, {', '.join(NAMES)}, a folder of `tropism train` (FOLDER@2: one of its agents), "
    "module:function, or llm:MODEL@URL"
)


STANDALONE_FORMS = (
    "module:function or llm:MODEL@URL; other policies need --env, or a URL with /envs/ID of an id registered here"
)


class SteppedPolicy(HostPolicy):
    """Runs a `Policy` in a session, with the same random numbers as when it is compiled.

    Strategies and trained agents are compiled; other policies are called as they are, since a host environment's
    observations may be text and its policies impure.
    """

    def __init__(self, policy: Policy):
        self._policy = policy
        self._act = _compile(policy) if isinstance(policy, Strategy) else policy.act

    def begin(self, seed: int) -> None:
        self._steps, self._key = 0, policy_key(jnp.asarray(seed_words(seed)))
        self._memory = self._policy.init(self._key)

    def act(self, outcome: StepOutcome) -> Any:
        key = random.fold_in(self._key, self._steps)
        self._steps += 1
        action, self._memory = check_result(self._policy, self._act(key, self._memory, outcome.obs))
        return np.asarray(action) if isinstance(action, Array) else action


def _compile(policy: Strategy) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    act = eqx.filter_jit(policy.act)
    # As arrays: a Python number would be compiled as a constant.
    return lambda key, memory, obs: act(key, memory, jax.tree.map(np.asarray, obs))


def resolve_policy(name: str, env: Environment, params: Any, greedy: bool = False) -> Policy | HostPolicy:
    """The policy of this name for an environment; `greedy` applies to trained agents."""
    if name == "random":
        return RandomPolicy(env.action_space(params))
    if name in NAMES:
        if not isinstance(env, PlumeNav):
            raise ValidationError("policy", name, "a plume environment: this strategy tracks odour")
        return make_strategy(name, env.sensor, env.motion)
    return resolve_standalone(name) if _is_standalone(name) else _load_trained(name, env, params, greedy)


def expand_agents(name: str) -> list[str]:
    """The name, or `name@0`, `name@1`, … if it is a folder with several agents."""
    path, number = _split_agent(name)
    if _is_standalone(name) or number is not None or not path.exists():
        return [name]
    seeds = checkpoint.load_training(path).seeds
    return [name] if seeds == 1 else [f"{name}@{number}" for number in range(seeds)]


def is_trained(name: str) -> bool:
    return not _is_standalone(name) and _split_agent(name)[0].exists()


def _split_agent(name: str) -> tuple[Path, int | None]:
    """The checkpoint and agent number of `folder`, `file`, `folder@number` or `file@number`."""
    place, _, number = name.rpartition("@")
    path = Path(place if place and number.isdecimal() else name)
    return path / CHECKPOINT if path.is_dir() else path, int(number) if place and number.isdecimal() else None


def _load_trained(name: str, env: Environment, params: Any, greedy: bool) -> Policy:
    path, number = _split_agent(name)
    if not path.exists():
        raise ValidationError("policy", name, POLICY_FORMS)
    trained_env, trained_params = checkpoint.load_training(path).environment()
    if trained_env.action_space(trained_params) != env.action_space(params):
        raise ValidationError("policy", name, f"an agent that acts in {env.action_space(params)!r}")
    space, trained_space = env.observation_space(params), trained_env.observation_space(trained_params)
    if _array_specs(space) != _array_specs(trained_space):
        raise ValidationError("policy", name, f"an agent that observes {space!r}, not {trained_space!r}")
    return load(path, number or 0, greedy=greedy)


def load(path: Path, seed: int = 0, greedy: bool = False, network: type | None = None) -> Policy:
    """Agent number `seed` of a checkpoint; `network` is a class that cannot be imported by its name."""
    training, state, _ = checkpoint.load(path, network)
    if not 0 <= seed < training.seeds:
        raise ValidationError("seed", seed, f"one of the {training.seeds} agents of this training, from 0")
    return training.make_algorithm().policy(jax.tree.map(lambda leaf: leaf[seed], state), greedy)


def _array_specs(space: Space) -> list[tuple[tuple[int, ...], Any]]:
    """The shape and dtype of each array in an observation."""
    if isinstance(space, Dict):
        return [each for part in space.spaces.values() for each in _array_specs(part)]
    if isinstance(space, Tuple):
        return [each for part in space.spaces for each in _array_specs(part)]
    return [(space.shape or (), space.dtype)]


def _is_standalone(name: str) -> bool:
    """Whether the policy can be created without an environment."""
    return name.startswith("llm:") or (":" in name and not Path(name).exists())


def resolve_standalone(name: str) -> Policy | HostPolicy:
    """A policy that is created without an environment, so that it also works with an unknown server."""
    if name.startswith("llm:"):
        model, at, url = name.removeprefix("llm:").partition("@")
        if not at or not model:
            raise ValidationError("policy", name, "llm:MODEL@URL")
        return LanguageModel(model, url)
    if ":" not in name:
        raise ValidationError("policy", name, STANDALONE_FORMS)
    target = resolve("policy", name, "module:function")
    if isinstance(target, type) and issubclass(target, Policy):
        return target()
    if isinstance(target, Policy):
        return target
    if isinstance(target, type) or (callable(target) and accepts(target, 1)):
        return HostFunctionPolicy(target)
    return as_policy(target)
