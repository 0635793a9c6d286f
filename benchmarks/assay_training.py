"""The plumes in which the agents of `benchmarks.assay` are trained, and how they perceive odour."""

from dataclasses import fields, replace
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, Float, Int

from tropism.core.rollout.policy import Policy
from tropism.envs.plume.nav import PlumeNav
from tropism.envs.plume.tasks import singh
from tropism.plume.fields import share
from tropism.plume.fields.shared import Shared
from tropism.plume.receptors import Saturating, Threshold
from tropism.plume.sensors import Concat, Concentration, FlyerWind
from tropism.plume.wind import Switching

HALF = 0.02  # concentration of half the response
ODOUR = 2  # its index in an observation
KEEP = (1.0, 0.7, 0.4, 0.25)  # fractions of the puffs
WINDS = (  # from constant to rarely and strongly turning
    Switching(spread=0.0),
    Switching(),
    Switching(spread=0.35),
    Switching(interval=8.0, spread=0.6, limit=0.8),
)


class ManyPlumes(Shared):
    """Several realisations, one after another in `states`; an episode stays in one."""

    length: int = eqx.field(static=True, default=1)  # frames of each

    def init(self, key: Any) -> Int[Array, ""]:
        plume_key, start_key = random.split(key)
        plume = random.randint(plume_key, (), 0, self.num_frames // self.length)
        return plume * self.length + super().init(start_key)


class VariedPlumes(PlumeNav):
    """PlumeNavSingh-v0 in plumes of different winds and puff numbers, with an odour sensor that saturates."""

    def __init__(self, realisation: int = 1000):
        sensor = Concat((FlyerWind(dt=0.04), Saturating(Threshold(Concentration(), floor=1e-4), half=HALF)))
        task = singh("switch_many", realisation=realisation).with_parts(sensor=sensor)
        super().__init__(**{each.name: getattr(task, each.name) for each in fields(task)})

    def default_params(self) -> Any:
        return replace(super().default_params(), field=_simulate_plumes(self.field, self.max_steps, self.realisation))


@cache
def _simulate_plumes(field: Any, steps: int, realisation: int) -> ManyPlumes:
    length, key = 2 * steps + 1, random.key(realisation)
    kinds = [replace(field, flow=flow, keep=keep) for flow in WINDS for keep in KEEP]
    kinds = [jax.tree.map(jnp.asarray, kind) for kind in kinds]  # compiled once: numbers would be compiled in
    films = [share(kind, random.fold_in(key, number), length).states for number, kind in enumerate(kinds)]
    states = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), *films)
    return ManyPlumes(field.source, field, states, len(kinds) * length, 0, steps + 1, length)


class Compressed(eqx.Module):
    """A policy of `VariedPlumes` in an environment whose odour sensor is linear."""

    policy: Policy

    def init(self, key: Any) -> Any:
        return self.policy.init(key)

    def act(self, key: Any, memory: Any, obs: Float[Array, " 3"]) -> tuple[Any, Any]:
        return self.policy.act(key, memory, obs.at[ODOUR].divide(obs[ODOUR] + HALF))
