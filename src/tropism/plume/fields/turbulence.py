"""The turbulent wind that carries filaments (Farrell et al. 2002, doi:10.1023/A:1016283702837)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import random
from jaxtyping import Array, ArrayLike, Float

from tropism.plume import checks

STEP = 0.01  # s; the time step of the paper's noise amplitude


class TurbulenceState(eqx.Module):
    noise: Float[Array, "2 2 2 2"]  # m/s: (value, rate of change), (u, v), corner in x, corner in y
    grid: Float[Array, "2 nx ny"]  # m/s: u and v at the grid points, with one row of ghost points beyond each edge


class Turbulence(eqx.Module):
    """du/dt = −u·∇u + ½K∇²u on a coarse grid, driven from its edges: the mean wind plus coloured noise at
    the four corners, interpolated along the edges.

    The noise is an oscillator driven by white noise, x″ = −ω²x − 2ζωx′ + Gω²n. The paper draws n at
    every step of 0.01 s, so that its amplitude depends on the step; here n is white noise of the same
    strength, and the stationary variance is (G²·0.01 s)·ω/4ζ = 2 m²/s² for any step.
    """

    low: Any = (0.0, -50.0)  # m, one corner of the arena
    high: Any = (100.0, 50.0)  # m, the opposite one
    mean: Any = (1.0, 0.0)  # m/s
    diffusivity: ArrayLike = 10.0  # m²/s, K
    gain: ArrayLike = 20.0  # G
    damping: ArrayLike = 0.1  # ζ
    bandwidth: ArrayLike = 0.2  # rad/s, ω
    columns: int = eqx.field(static=True, default=21)  # grid points in x
    rows: int = eqx.field(static=True, default=21)  # grid points in y

    def __check_init__(self):
        checks.require_point(low=self.low, high=self.high, mean=self.mean)
        checks.require_non_negative(diffusivity=self.diffusivity, gain=self.gain)
        checks.require_positive(damping=self.damping, bandwidth=self.bandwidth)
        checks.require_count(at_least=2, columns=self.columns, rows=self.rows)

    def init(self, key: Any) -> TurbulenceState:
        """Noise from its stationary distribution; the wind inside interpolates the corners."""
        deviation = self.gain * jnp.sqrt(STEP * self.bandwidth / (4 * self.damping))
        scale = jnp.stack([deviation, deviation * self.bandwidth])
        noise = scale[:, None, None, None] * random.normal(key, (2, 2, 2, 2))
        across_x = jnp.einsum("cij,ix->cxj", self._corners(noise), _ramps(self.columns + 2))
        return TurbulenceState(noise, jnp.einsum("cxj,jy->cxy", across_x, _ramps(self.rows + 2)))

    def advance(self, key: Any, state: TurbulenceState, dt: Any) -> TurbulenceState:
        noise = self._step_noise(key, state.noise, dt)
        grid = self._apply_boundary(state.grid, self._corners(noise))
        return TurbulenceState(noise, grid.at[:, 1:-1, 1:-1].add(dt * self._acceleration(grid)))

    def velocity(self, state: TurbulenceState, x: Any, y: Any) -> tuple[Any, Any]:
        """u and v at any points, bilinear between grid points; outside the arena as on its edge."""
        column, right = _cell((x - self.low[0]) / self._spacing()[0], self.columns)
        row, up = _cell((y - self.low[1]) / self._spacing()[1], self.rows)
        first = (column + 1) * (self.rows + 2) + row + 1
        u, v = (_bilinear(part.ravel(), first, self.rows + 2, right, up) for part in state.grid)
        return u, v

    def contains(self, x: Any, y: Any) -> Any:
        return (x >= self.low[0]) & (x <= self.high[0]) & (y >= self.low[1]) & (y <= self.high[1])

    def _spacing(self) -> tuple[Any, Any]:
        return (self.high[0] - self.low[0]) / (self.columns - 1), (self.high[1] - self.low[1]) / (self.rows - 1)

    def _step_noise(self, key: Any, noise: Any, dt: Any) -> Any:
        """One semi-implicit Euler step of the oscillators, which preserves the damping."""
        value, rate = noise
        restoring = -(self.bandwidth**2 * value + 2 * self.damping * self.bandwidth * rate)
        kick = self.gain * jnp.sqrt(STEP * dt) * self.bandwidth**2 * random.normal(key, value.shape)
        rate = rate + dt * restoring + kick
        return jnp.stack([value + dt * rate, rate])

    def _corners(self, noise: Any) -> Float[Array, "2 2 2"]:
        return noise[0] + jnp.asarray(self.mean)[:, None, None]

    def _apply_boundary(self, grid: Any, corners: Any) -> Any:
        """The grid with its outermost points interpolated between the corners."""
        along_x = jnp.einsum("cij,ix->jcx", corners, _ramps(self.columns + 2))
        along_y = jnp.einsum("cij,jy->icy", corners, _ramps(self.rows + 2))
        grid = grid.at[:, 0, :].set(along_y[0]).at[:, -1, :].set(along_y[1])
        return grid.at[:, :, 0].set(along_x[0]).at[:, :, -1].set(along_x[1])

    def _acceleration(self, grid: Any) -> Any:
        width, height = self._spacing()
        here, left, right = grid[:, 1:-1, 1:-1], grid[:, :-2, 1:-1], grid[:, 2:, 1:-1]
        below, above = grid[:, 1:-1, :-2], grid[:, 1:-1, 2:]
        advection = here[0] * (right - left) / (2 * width) + here[1] * (above - below) / (2 * height)
        diffusion = self._diffusivity(here[0], width) * (right - 2 * here + left) / width**2
        diffusion += self._diffusivity(here[1], height) * (above - 2 * here + below) / height**2
        return diffusion - advection

    def _diffusivity(self, speed: Any, spacing: Any) -> Any:
        """½K, and more where the wind is too strong for the grid: central differences would overshoot there, and
        in one of some hundred episodes a gust would diverge (Spalding 1972, doi:10.1002/nme.1620040409)."""
        return jnp.maximum(0.5 * self.diffusivity, jnp.abs(speed) * spacing / 2)


def _ramps(num: int) -> Float[Array, "2 {num}"]:
    up = jnp.linspace(0.0, 1.0, num)
    return jnp.stack([1 - up, up])


def _cell(position: Any, num: int) -> tuple[Any, Any]:
    """The cell between `num` points that contains a position, and the fraction, 0 to 1, inside it."""
    position = jnp.clip(position, 0, num - 1)
    cell = jnp.minimum(position.astype(jnp.int32), num - 2)
    return cell, position - cell


def _bilinear(values: Any, first: Any, stride: int, right: Any, up: Any) -> Any:
    """Interpolate between four points of a flattened grid; `first` is the lower left one."""
    left_edge = (1 - up) * values[first] + up * values[first + 1]
    right_edge = (1 - up) * values[first + stride] + up * values[first + stride + 1]
    return (1 - right) * left_edge + right * right_edge
