"""Params and states print their numbers."""

import jax
import jax.numpy as jnp

from tropism import Discrete, make


def test_params_print_every_number_with_its_default():
    _, params = make("CartPole-v1", params={"gravity": 3.7})
    text = str(params)
    assert "gravity=3.7" in text
    assert "masscart=1.0" in text
    assert "max_steps=500" in text


def test_a_state_prints_small_arrays_as_numbers_and_large_ones_by_shape():
    env, params = make("PlumeNavMeander-v0")
    text = str(env.reset(jax.random.key(0), params)[1])
    assert "time=0" in text
    assert "agent=AgentPose(x=64., y=73., heading=-1.862303" in text
    assert "path=float32[96]" in text


def test_traced_values_and_keys_can_be_printed():
    env, params = make("CartPole-v1")
    shown: list[str] = []

    @jax.jit
    def reset(key: jax.Array) -> jax.Array:
        state = env.reset(key, params)[1]
        shown.append(str(state))
        return jnp.float32(0)

    reset(jax.random.key(0))
    assert "theta=" in shown[0]


def test_a_space_prints_its_constructor_call():
    assert str(Discrete(4)) == "Discrete(4)"
