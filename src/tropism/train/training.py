"""The settings of a training run."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tropism.core.environment import Environment
from tropism.core.episode import seed_words
from tropism.core.resolve import resolve_environment
from tropism.errors import ValidationError
from tropism.train.algorithm import Algorithm, algorithm_class
from tropism.train.updates import init_agents_compiled
from tropism.train.user_network import network_name


class Training(NamedTuple):
    """The settings of a training run, sufficient to rebuild its algorithm."""

    id: str  # or module:Class
    arguments: dict[str, Any]
    params: dict[str, Any]
    config: Any  # the Config of an algorithm
    seed: int
    seeds: int
    network: Any = None  # user-defined: a class, or module:Class

    def environment(self) -> tuple[Environment, Any]:
        return resolve_environment(self.id, self.params, self.arguments)

    def make_algorithm(self) -> Algorithm:
        env, params = self.environment()
        if not env.pure:
            raise ValidationError("id", self.id, "a pure environment: training is compiled, which needs one")
        return algorithm_class(self.config.algorithm)(env, params, self.config, self.network)

    def with_network_name(self) -> "Training":
        """The settings as stored in a checkpoint, where the network is a name."""
        return self._replace(network=network_name(self.network))

    def start(self, algorithm: Algorithm) -> Any:
        """The state of the agents before the first update."""
        return init_agents_compiled(algorithm, self.keys)

    @property
    def keys(self) -> NDArray[Any]:
        """Raw key data of the agents: agent i is that of a run with the seed `seed + i`."""
        return np.stack([seed_words(self.seed + agent) for agent in range(self.seeds)])
