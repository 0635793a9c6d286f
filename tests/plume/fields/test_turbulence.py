"""The turbulent wind against its equations."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import ValidationError
from tropism.plume.fields import Turbulence
from tropism.plume.fields.turbulence import TurbulenceState

VARIANCE = (20.0**2 * 0.01) * 0.2 / (4 * 0.1)  # m²/s², of white noise through the oscillator


def noise_series(air: Turbulence, num: int, dt: float, batch: int) -> np.ndarray:
    """The noise of every corner: (time, series)."""

    def series(key: Any) -> Any:
        def move(state: Any, step_key: Any) -> tuple[Any, Any]:
            state = air.advance(step_key, state, dt)
            return state, state.noise[0].ravel()

        start_key, steps_key = random.split(key)
        return jax.lax.scan(move, air.init(start_key), random.split(steps_key, num))[1]

    values = jax.jit(jax.vmap(series))(random.split(random.key(0), batch))
    return np.moveaxis(np.asarray(values, float), 0, 1).reshape(num, -1)


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return noise_series(Turbulence(columns=2, rows=2), num=8192, dt=0.2, batch=24)


def test_the_noise_has_the_variance_of_a_driven_oscillator(noise: np.ndarray) -> None:
    assert noise.var() == pytest.approx(VARIANCE, rel=0.08)
    assert noise[:100].var() == pytest.approx(VARIANCE, rel=0.25)  # from the first step on
    assert noise.mean() == pytest.approx(0, abs=0.05)


def test_the_spectrum_of_the_noise_peaks_at_its_bandwidth(noise: np.ndarray) -> None:
    dt = 0.2
    power = (np.abs(np.fft.rfft(noise * np.hanning(len(noise))[:, None], axis=0)) ** 2).mean(axis=1)
    omega = 2 * math.pi * np.fft.rfftfreq(len(noise), dt)
    assert omega[power.argmax()] == pytest.approx(0.2 * math.sqrt(1 - 2 * 0.1**2), abs=0.02)
    theory = 1 / ((0.2**2 - omega**2) ** 2 + (2 * 0.1 * 0.2 * omega) ** 2)
    bands = [(0.05, 0.12), (0.16, 0.18), (0.18, 0.22), (0.22, 0.26), (0.3, 0.5), (0.6, 1.0)]
    inside = [(omega > low) & (omega < high) for low, high in bands]
    ratio = np.array([power[band].sum() / theory[band].sum() for band in inside])
    np.testing.assert_allclose(ratio / ratio.mean(), 1, atol=0.25)


def test_one_step_agrees_with_the_equation() -> None:
    """Against loops over the grid, without noise."""
    air = Turbulence(columns=5, rows=4, low=(0.0, 0.0), high=(8.0, 9.0), gain=0.0, mean=(1.0, 0.5))
    grid = np.random.default_rng(0).normal(0, 1, (2, 7, 6))
    after = air.advance(random.key(0), TurbulenceState(jnp.zeros((2, 2, 2, 2)), jnp.asarray(grid)), 0.05).grid
    expected = grid.copy()
    for part, mean in enumerate((1.0, 0.5)):
        expected[part, [0, -1], :] = mean
        expected[part, :, [0, -1]] = mean
    old, dx, dy = expected.copy(), 2.0, 3.0
    for part in range(2):
        for i in range(1, 6):
            for j in range(1, 5):
                ddx = (old[part, i + 1, j] - old[part, i - 1, j]) / (2 * dx)
                ddy = (old[part, i, j + 1] - old[part, i, j - 1]) / (2 * dy)
                laplace = (old[part, i + 1, j] - 2 * old[part, i, j] + old[part, i - 1, j]) / dx**2
                laplace += (old[part, i, j + 1] - 2 * old[part, i, j] + old[part, i, j - 1]) / dy**2
                change = -old[0, i, j] * ddx - old[1, i, j] * ddy + 0.5 * 10.0 * laplace
                expected[part, i, j] += 0.05 * change
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)


def test_edges_are_interpolated_between_corners() -> None:
    air = Turbulence(columns=3, rows=4)
    state = air.advance(random.key(1), air.init(random.key(0)), 0.1)
    corner = np.asarray(state.noise[0]) + np.array([1.0, 0.0])[:, None, None]
    grid = np.asarray(state.grid)
    np.testing.assert_allclose(grid[:, 0, 0], corner[:, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(grid[:, -1, -1], corner[:, 1, 1], rtol=1e-5)
    np.testing.assert_allclose(grid[:, 2, 0], (corner[:, 0, 0] + corner[:, 1, 0]) / 2, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grid[:, 0, 2], 0.6 * corner[:, 0, 0] + 0.4 * corner[:, 0, 1], rtol=1e-4, atol=1e-5)


def test_velocity_is_bilinear_and_constant_beyond_the_arena() -> None:
    air = Turbulence(columns=5, rows=4, low=(0.0, -3.0), high=(8.0, 6.0))
    grid = np.random.default_rng(0).normal(0, 1, (2, 7, 6))
    inner = grid[:, 1:-1, 1:-1]
    state = TurbulenceState(jnp.zeros((2, 2, 2, 2)), jnp.asarray(grid))
    points = np.random.default_rng(1).uniform([-1, -4], [9, 7], (50, 2))
    u, v = air.velocity(state, jnp.asarray(points[:, 0]), jnp.asarray(points[:, 1]))
    for index, (x, y) in enumerate(points):
        column, row = np.clip(x / 2.0, 0, 4), np.clip((y + 3) / 3.0, 0, 3)
        i, j = min(int(column), 3), min(int(row), 2)
        right, up = column - i, row - j
        weight = np.array([[1 - right], [right]]) * np.array([1 - up, up])
        expected = (inner[:, i : i + 2, j : j + 2] * weight).sum(axis=(1, 2))
        np.testing.assert_allclose([u[index], v[index]], expected, atol=1e-5)


def test_without_noise_the_wind_stays_at_its_mean() -> None:
    air = Turbulence(gain=0.0, mean=(0.7, -0.2))
    state = air.init(random.key(0))
    for step in range(3):
        state = air.advance(random.key(step), state, 0.1)
    u, v = air.velocity(state, jnp.array([3.0, 70.0]), jnp.array([0.0, 20.0]))
    np.testing.assert_allclose(u, 0.7, rtol=1e-5)
    np.testing.assert_allclose(v, -0.2, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("damping", 0.0), ("bandwidth", -0.2), ("diffusivity", math.nan), ("gain", -1.0), ("columns", 1), ("low", (0.0,))],
)
def test_invalid_numbers_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        Turbulence(**{name: value})


@pytest.mark.parametrize("seed", range(3))
def test_a_strong_wind_does_not_exceed_its_boundary_values(seed: int) -> None:
    """The wind inside is never stronger than it was somewhere on the edge: the scheme does not overshoot."""
    air = Turbulence(gain=100.0)
    state = air.init(random.key(seed))
    strongest = jnp.abs(state.grid).max()

    def advance(carry: Any, key: Any) -> tuple[Any, Any]:
        state, strongest = carry
        state = air.advance(key, state, 0.04)
        strongest = jnp.maximum(strongest, jnp.abs(state.grid[:, 0]).max())
        strongest = jnp.maximum(strongest, jnp.abs(state.grid[:, -1]).max())
        return (state, strongest), jnp.abs(state.grid).max() / strongest

    ratios = jax.lax.scan(advance, (state, strongest), random.split(random.key(seed + 100), 2_000))[1]
    assert strongest > 10  # m/s
    assert (ratios <= 1 + 1e-5).all()
