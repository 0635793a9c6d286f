"""The plumes and the network of the agents that benchmarks train."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.assay_training import HALF, Compressed, ManyPlumes
from benchmarks.odour_network import HIDDEN, LONGEST, OdourNetwork
from jax import random

from tropism.core.rollout.policy import as_policy
from tropism.core.spaces import Box
from tropism.plume.fields import Puffs
from tropism.plume.receptors import Saturating
from tropism.plume.sensors import Concentration

LENGTH, STEPS, PLUMES = 21, 10, 3


def test_an_episode_stays_in_one_of_many_plumes() -> None:
    states = jnp.arange(PLUMES * LENGTH)
    field = ManyPlumes((0.0, 0.0), Puffs(), states, PLUMES * LENGTH, 0, STEPS + 1, LENGTH)
    first = np.asarray(jax.vmap(field.init)(random.split(random.key(0), 500)))
    assert {*(first // LENGTH)} == {*range(PLUMES)}
    assert {*(first % LENGTH)} == {*range(STEPS + 1)}
    last = first
    for _ in range(STEPS):
        last = np.asarray(jax.vmap(lambda state: field.advance(random.key(0), state))(last))
    assert (last // LENGTH == first // LENGTH).all()


def test_a_compressed_policy_perceives_odour_as_in_its_training() -> None:
    policy = Compressed(as_policy(lambda obs: obs))
    seen, _ = policy.act(random.key(0), policy.init(random.key(0)), jnp.array([0.5, -1.0, 0.3]))
    response, _ = Saturating(Concentration(), half=HALF).respond(random.key(0), (), jnp.array([0.3]))
    np.testing.assert_allclose(seen, [0.5, -1.0, response[0]])


def test_units_of_the_odour_network_remember_for_2_to_150_steps() -> None:
    network = OdourNetwork(Box(-1, 1, (3,)), Box(-1, 1, (2,)), key=random.key(0))
    for cell in (network.actor.cell, network.critic.cell):
        assert cell is not None
        still = (jnp.zeros_like(cell.weight_ih), jnp.zeros_like(cell.weight_hh))
        still_cell = eqx.tree_at(lambda cell: (cell.weight_ih, cell.weight_hh), cell, still)
        forgotten, remembered = (still_cell(jnp.zeros(HIDDEN), jnp.full(HIDDEN, fill)) for fill in (0.0, 1.0))
        np.testing.assert_allclose(remembered - forgotten, 1 - 1 / np.geomspace(2, LONGEST, HIDDEN), rtol=1e-4)
