"""A custom plume as a pure function: it compiles, and a thousand agents search in it in parallel."""

import jax
import jax.numpy as jnp

from tropism import PlumeNav, random_policy, rollout
from tropism.plume import Field


class Breathing(Field):
    source: tuple[float, float] = (64.0, 64.0)
    sigma: float = 20.0
    period: float = 50.0  # steps

    def init(self, key):
        return jax.random.uniform(key, maxval=self.period)  # the phase at the start of an episode

    def advance(self, key, state):
        return state + 1.0

    def concentration(self, state, xy):
        width = self.sigma * (1 + 0.5 * jnp.sin(2 * jnp.pi * state / self.period))
        return jnp.exp(-jnp.sum((xy - jnp.stack(self.source)) ** 2, -1) / (2 * width**2))

    def wind(self, state, xy):
        return jnp.zeros_like(xy)


if __name__ == "__main__":
    env = PlumeNav(field=Breathing())
    found = rollout(env, random_policy(env), 0, num_envs=1000, num_steps=1000, collect=False).episodes
    print(f"{int(found.total_return)} of {int(found.episodes)} random searches found the source")
