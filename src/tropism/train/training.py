"""The settings of a training run."""

from typing import Any, NamedTuple

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

    @property
    def network_class(self) -> type | None:
        """The network, if it was passed as a class, which need not be importable."""
        return self.network if isinstance(self.network, type) else None

    def with_network_name(self) -> "Training":
        """The settings as stored in a checkpoint, where the network is a name."""
        return self._replace(network=network_name(self.network))

    def start(self, algorithm: Algorithm) -> Any:
        """The state of `seeds` agents before the first update."""
        return init_agents_compiled(algorithm, seed_words(self.seed), self.seeds)
