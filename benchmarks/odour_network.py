"""The network of agents in difficult plumes."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tropism.train.network import ActorCritic, Memory, Torso

ODOUR = 2  # its index in an observation, after the wind
GAIN = 500.0  # the signal of a single puff far from the source, 0.002, becomes 0.35
HIDDEN = 32
LONGEST = 150.0  # steps that a unit remembers before training; 6 s


class OdourNetwork(ActorCritic):
    """The recurrent network with two changes for odour that is faint and rare.

    It perceives the logarithm of the odour: running statistics are dominated by the odour near the source, so that
    far from it odour would change a normalized input by less than a tenth. Its units remember for 2 to `LONGEST`
    steps before training (Tallec & Ollivier 2018), where those of a usual GRU forget within a few.
    """

    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        super().__init__(observation_space, action_space, key=key, hidden=HIDDEN, recurrent=True)
        self.actor, self.critic = _with_long_memory(self.actor), _with_long_memory(self.critic)

    def __call__(self, obs: Float[Array, " 3"], memory: Memory | None) -> tuple[Any, Any, Memory | None]:
        odour = jnp.log1p(GAIN * jnp.maximum(obs[ODOUR], 0)) / 2
        return super().__call__(obs.at[ODOUR].set(odour), memory)


def _with_long_memory(torso: Torso) -> Torso:
    """With biases of the update gates for time constants evenly spaced on a logarithmic scale."""
    steps = jnp.geomspace(2.0, LONGEST, HIDDEN)

    def bias(torso: Torso) -> Any:
        return torso.cell.bias  # pyright: ignore[reportOptionalMemberAccess]

    gates = bias(torso).at[HIDDEN : 2 * HIDDEN].set(jnp.log(steps - 1))  # the second of three gates
    return eqx.tree_at(bias, torso, gates)
