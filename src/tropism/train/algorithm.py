"""The interface of a training algorithm, and the algorithms by name.

An algorithm is one file, with a `Config` and an `Algorithm`, and one line in `ALGORITHMS`.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import equinox as eqx

from tropism.core.environment import Environment
from tropism.core.module import Module
from tropism.core.resolve import resolve
from tropism.core.rollout.policy import Policy
from tropism.core.spaces import Space
from tropism.errors import ValidationError

ALGORITHMS = {"ppo": "tropism.train.ppo:PPO", "q-learning": "tropism.train.q_learning:QLearning"}


def option(default: Any, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Hyperparameters; an algorithm's subclass adds its own. Each field is an option of `tropism train`."""

    algorithm: ClassVar[str]  # its name in ALGORITHMS, or module:Class

    total_steps: int = option(500_000, "Total environment steps.")
    num_envs: int = option(16, "Parallel environments.")
    num_steps: int = option(128, "Steps per environment between updates.")

    def __post_init__(self) -> None:
        self.require_counts("total_steps", "num_envs", "num_steps")
        if self.total_steps < self.batch:
            raise ValidationError("total_steps", self.total_steps, f"at least {self.batch}, the steps of one update")

    def require_counts(self, *names: str) -> None:
        for name in names:
            if vars(self)[name] < 1:
                raise ValidationError(name, vars(self)[name], "an integer of at least 1")

    def require_fractions(self, *names: str) -> None:
        for name in names:
            if not 0 <= vars(self)[name] <= 1:
                raise ValidationError(name, vars(self)[name], "0 to 1")

    @property
    def batch(self) -> int:
        """Environment steps per update."""
        return self.num_envs * self.num_steps

    @property
    def num_updates(self) -> int:
        return self.total_steps // self.batch


class UpdateMetrics(NamedTuple):
    """Metrics of one update, arrays."""

    episodes: Any  # number of finished episodes
    returns: Any  # sum of their returns
    last_return: Any  # mean over environments of the last finished episode; NaN until each has one
    loss: Any  # what the algorithm minimizes; must be finite
    fault: Any  # of `find_fault`, or `Fault.none()`


class Algorithm(Module):
    """Abstract: trains one agent in one pure environment; `vmap` over states trains several.

    `Config` is the class of `config`. A state is a pytree of arrays, complete: an update depends on nothing else.
    """

    Config: ClassVar[Any]

    env: Environment
    params: Any
    config: Any = eqx.field(static=True)

    @abstractmethod
    def __init__(self, env: Environment, params: Any, config: Any, network: Any = None):
        """`network` is user-defined: a class, or `module:Class`."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What is trained, for the announcement: such as "a recurrent network"."""

    @abstractmethod
    def init(self, key: Any) -> Any:
        """The state before the first update."""

    @abstractmethod
    def update(self, state: Any) -> tuple[Any, UpdateMetrics]:
        """Take `config.batch` environment steps and learn from them."""

    @abstractmethod
    def policy(self, state: Any, greedy: bool = False) -> Policy:
        """The trained policy; `greedy` takes the most likely action in place of a sample."""

    def finite_parts(self, state: Any) -> dict[str, Any]:
        """The parts of a state in which a NaN or infinite number stops the run, by name."""
        return {"state": state}

    def observation_space(self) -> Space:
        return self.env.observation_space(self.params)


def algorithm_class(name: str) -> type[Algorithm]:
    """The algorithm of this name, or at `module:Class`."""
    if name not in ALGORITHMS and ":" not in name:
        raise ValidationError("algorithm", name, f"{', '.join(ALGORITHMS)}, or module:Class")
    found = resolve("algorithm", ALGORITHMS.get(name, name), "module:Class")
    if not isinstance(found, type) or not issubclass(found, Algorithm):
        raise ValidationError("algorithm", name, "a class that derives from tropism.train.Algorithm")
    return found
