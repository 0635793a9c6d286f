"""The static Gaussian against NumPy."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.fields import Gaussian
from tropism.plume.wind import Constant, SwitchOnce

POINTS = np.random.default_rng(0).uniform(0, 128, (50, 2))


def test_concentration_agrees_with_the_equation() -> None:
    field = Gaussian((30.0, 70.0), sigma=12.0)
    squared = ((POINTS - [30, 70]) ** 2).sum(-1)
    np.testing.assert_allclose(
        field.concentration((), jnp.asarray(POINTS)), np.exp(-squared / (2 * 12.0**2)), rtol=1e-5
    )
    assert float(field.concentration((), jnp.array([30.0, 70.0]))) == 1.0


def test_a_constant_wind_has_no_state() -> None:
    field = Gaussian()
    state = field.init(random.key(0))
    assert state == ()
    assert field.advance(random.key(1), state) == ()
    np.testing.assert_array_equal(field.wind((), jnp.asarray(POINTS)), np.zeros((50, 2)))


def test_the_wind_advances() -> None:
    field = Gaussian(flow=SwitchOnce(speed=1.0, turn=math.pi / 3, earliest=1.5, latest=1.5), dt=1.0)
    state = field.init(random.key(0))
    for step in range(3):
        state = field.advance(random.key(step), state)
    np.testing.assert_allclose(field.wind(state, jnp.zeros(2)), [0.5, math.sqrt(0.75)], atol=1e-6)


def test_equal_by_value_and_hashable() -> None:
    assert Gaussian(sigma=3.0) == Gaussian(sigma=3.0) != Gaussian(sigma=4.0)
    assert hash(Gaussian(sigma=3.0)) == hash(Gaussian(sigma=3.0))
    assert Gaussian(flow=Constant((1.0, 0.0))) != Gaussian()


def test_numbers_can_be_vmapped_and_do_not_recompile() -> None:
    traces = 0

    @jax.jit
    def smell(sigma: Any) -> Any:
        nonlocal traces
        traces += 1
        return Gaussian(sigma=sigma).concentration((), jnp.array([64.0, 74.0]))

    widths = np.array([5.0, 10.0, 20.0], np.float32)
    np.testing.assert_allclose(jax.vmap(smell)(widths), np.exp(-100 / (2 * widths**2)), rtol=1e-5)
    smell(1.0)
    smell(2.0)
    assert traces == 2  # one under vmap, one for all plain numbers


def test_double_precision() -> None:
    with jax.enable_x64(True):
        smell = Gaussian().concentration((), jnp.asarray(POINTS))
        squared = ((POINTS - 64) ** 2).sum(-1)
        assert smell.dtype == np.float64
        np.testing.assert_allclose(smell, np.exp(-squared / 800), rtol=1e-14)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, np.float32(-2), True])
def test_an_invalid_width_is_rejected(sigma: Any) -> None:
    with pytest.raises(ValidationError, match="sigma"):
        Gaussian(sigma=sigma)


@pytest.mark.parametrize("source", [(math.nan, 0.0), (1.0,), (1.0, 2.0, 3.0)])
def test_an_invalid_source_is_rejected(source: Any) -> None:
    with pytest.raises(ValidationError, match="source"):
        Gaussian(source)
