"""Who plays, by name: an agent that was trained, a strategy, chance, a function of the user's, a language model."""

import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from tropism.core.environment import Environment
from tropism.core.episode import seed_words
from tropism.core.resolve import imported
from tropism.core.rollout.episodes import actor_key
from tropism.core.spaces import Dict, Space, Tuple
from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ValidationError
from tropism.plume.strategies import Strategy
from tropism.plume.strategies.catalog import NAMES, make_strategy
from tropism.train import checkpoint
from tropism.train import trained as policy
from tropism.train.language_model import LanguageModel
from tropism.train.run import CHECKPOINT
from tropism.train.runner import Moment, Own, Player

FORMS = (
    f"random, {', '.join(NAMES)}, a folder of `tropism train` (FOLDER@2: one of its agents), "
    "module:function, or llm:MODEL@URL"
)


KNOWN = (
    "module:function or llm:MODEL@URL; other policies need --env, or an address with /envs/ID of an id registered here"
)


class Chance(Strategy):
    """Any action of the space, one as likely as the other."""

    space: Space

    def init(self, key: Any) -> Any:
        del key
        return ()

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        del obs
        return self.space.sample(key), memory


class Solo(Player):
    """A strategy at a table; it does there what it does compiled."""

    def __init__(self, strategy: Strategy):
        self._strategy = strategy
        self._act = strategy.act if isinstance(strategy, Chance) else eqx.filter_jit(strategy.act)

    def begin(self, seed: int) -> None:
        self._steps, self._key = 0, actor_key(jnp.asarray(seed_words(seed)))
        self._memory = self._strategy.init(self._key)

    def act(self, moment: Moment) -> Any:
        key = random.fold_in(self._key, self._steps)
        self._steps += 1
        obs = jax.tree.map(np.asarray, moment.obs)  # a number that is no array would be compiled in
        action, self._memory = self._act(key, self._memory, obs)
        return np.asarray(action) if isinstance(action, Array) else action


def named(name: str, env: Environment, params: Any, greedy: bool = False) -> Strategy | Player:
    """The policy that a name means in this environment; `greedy` is for trained agents."""
    if name == "random":
        return Chance(env.action_space(params))
    if name in NAMES:
        if not isinstance(env, PlumeNav):
            raise ValidationError("policy", name, "a plume environment: this strategy searches for a smell")
        return make_strategy(name, env.sensor, env.motion)
    return free(name) if _is_free(name) else _trained(name, env, params, greedy)


def each(name: str) -> list[str]:
    """The name, or one for every agent where it names a folder with several."""
    path, number = _agent(name)
    if _is_free(name) or number is not None or not path.exists():
        return [name]
    seeds = checkpoint.recipe_of(path).seeds
    return [name] if seeds == 1 else [f"{name}@{number}" for number in range(seeds)]


def is_trained(name: str) -> bool:
    return not _is_free(name) and _agent(name)[0].exists()


def _agent(name: str) -> tuple[Path, int | None]:
    """The checkpoint that `folder`, `file` or either with `@number` names, and which of its agents."""
    place, _, number = name.rpartition("@")
    path = Path(place if place and number.isdecimal() else name)
    return path / CHECKPOINT if path.is_dir() else path, int(number) if place and number.isdecimal() else None


def _trained(name: str, env: Environment, params: Any, greedy: bool) -> Strategy:
    path, number = _agent(name)
    if not path.exists():
        raise ValidationError("policy", name, FORMS)
    agent = policy.load(path, number or 0, greedy=greedy)
    if agent.actions.space != env.action_space(params):
        raise ValidationError("policy", name, f"an agent that acts in {env.action_space(params)!r}")
    _check_observations(name, agent, env.observation_space(params))
    return agent


def _check_observations(name: str, agent: policy.Trained, space: Space) -> None:
    """An agent that takes vectors needs as many numbers as it was trained with, any other the same arrays."""
    here, there = _arrays(space), _arrays(agent.observation_space)
    sizes = [sum(math.prod(shape) for shape, _ in arrays) for arrays in (here, there)]
    if agent.inputs.flatten and sizes[0] != sizes[1]:
        raise ValidationError("policy", name, f"an agent that observes {sizes[0]} numbers, not {sizes[1]}")
    if not agent.inputs.flatten and here != there:
        raise ValidationError("policy", name, f"an agent that observes {space!r}, not {agent.observation_space!r}")


def _arrays(space: Space) -> list[tuple[tuple[int, ...], Any]]:
    """The shape and dtype of each array in an observation."""
    if isinstance(space, Dict):
        return [each for part in space.spaces.values() for each in _arrays(part)]
    if isinstance(space, Tuple):
        return [each for part in space.spaces for each in _arrays(part)]
    return [(space.shape or (), space.dtype)]


def _is_free(name: str) -> bool:
    """Whether the name means a policy that knows nothing of environments."""
    return name.startswith("llm:") or (":" in name and not Path(name).exists())


def free(name: str) -> Strategy | Player:
    """A policy that needs no environment to be made: it can play on a server."""
    if name.startswith("llm:"):
        model, at, url = name.removeprefix("llm:").partition("@")
        if not at or not model:
            raise ValidationError("policy", name, "llm:MODEL@URL")
        return LanguageModel(model, url)
    if ":" not in name:
        raise ValidationError("policy", name, KNOWN)
    made = imported("policy", name, "module:function")
    if isinstance(made, type) and issubclass(made, Strategy):
        return made()
    if isinstance(made, Strategy):
        return made
    if not callable(made):
        raise ValidationError("policy", name, "a function of the observation, or a Strategy")
    return Own(made)
