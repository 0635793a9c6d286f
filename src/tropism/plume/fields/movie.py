"""Playback of a recorded plume."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array, ArrayLike, Float, Int, Real

from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields.field import Field
from tropism.plume.wind import Constant, Wind

ROUNDING = 1e-3  # frames; tolerance for rounding: 25 steps of 0.04 s are one second


class MovieState(eqx.Module):
    start: Float[Array, ""]  # s, into the recording
    steps: Int[Array, ""]
    flow: Any


class Movie(Field):
    """Frames (time, y, x). The field is the frame recorded at the current time, bilinear between pixels
    and 0 outside. The source is at `source_pixel`, (row, column); row 0 is the lowest y.

    `u` and `v` are frames of the wind's x and y; outside them, the wind is that at the nearest edge. Without them it is
    `flow`. With `clip`, negative pixels are 0.

    At its end the recording restarts (`end="wrap"`) or stays at the last frame (`"clamp"`). With "wrap" and
    `shuffle`, an episode begins at a random frame; otherwise at the first.
    """

    source: Any  # length units
    frames: Real[Array, "time height width"] | Real[np.ndarray, "time height width"]
    source_pixel: Any  # (row, column)
    pixel_size: ArrayLike  # length units
    frame_rate: ArrayLike  # frames/s
    scale: ArrayLike = 1.0  # concentration of a pixel value of 1
    flow: Wind = Constant()
    dt: ArrayLike = 0.04  # s, one step of the environment
    u: Real[Array, "time height width"] | Real[np.ndarray, "time height width"] | None = None  # length units/s
    v: Real[Array, "time height width"] | Real[np.ndarray, "time height width"] | None = None
    end: str = eqx.field(static=True, default="wrap")
    shuffle: bool = eqx.field(static=True, default=True)
    clip: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        checks.require_point(source=self.source, source_pixel=self.source_pixel)
        checks.require_positive(pixel_size=self.pixel_size, frame_rate=self.frame_rate, scale=self.scale, dt=self.dt)
        if (self.u is None) != (self.v is None):
            raise ValidationError("v", None, "frames if u has frames, and the reverse")
        if self.end not in ("wrap", "clamp"):
            raise ValidationError("end", self.end, '"wrap" or "clamp"')

    @property
    def step_duration(self) -> Any:
        return self.dt

    def init(self, key: Any) -> MovieState:
        start_key, flow_key = random.split(key)
        start = jnp.zeros((), jnp.result_type(float))
        if self.shuffle and self.end == "wrap":
            start = random.randint(start_key, (), 0, self.frames.shape[0]) / self.frame_rate
        return MovieState(start, jnp.zeros((), jnp.int32), self.flow.init(flow_key))

    def advance(self, key: Any, state: MovieState) -> MovieState:
        return MovieState(state.start, state.steps + 1, self.flow.advance(key, state.flow, self.dt))

    def concentration(self, state: MovieState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points"]:
        value, inside = self._interpolate(self.frames, state, xy, self.clip)
        return jnp.where(inside, self.scale * value, 0)

    def wind(self, state: MovieState, xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        if self.u is None or self.v is None:
            return jnp.broadcast_to(self.flow.velocity(state.flow), xy.shape)
        return jnp.stack([self._interpolate(film, state, xy)[0] for film in (self.u, self.v)], -1)

    def with_wind(self, wind: Any) -> "Movie":
        return replace(self, flow=wind, u=None, v=None)

    def _interpolate(self, film: Any, state: MovieState, xy: Any, clip: bool = False) -> tuple[Any, Any]:
        """The value at the current time, at the nearest edge for points outside, and whether they are inside."""
        frame = jnp.asarray(film)[self.frame_index(state)]
        height, width = frame.shape
        row = self.source_pixel[0] + (xy[..., 1] - self.source[1]) / self.pixel_size
        column = self.source_pixel[1] + (xy[..., 0] - self.source[0]) / self.pixel_size
        inside = (column >= 0) & (column <= width - 1) & (row >= 0) & (row <= height - 1)
        row, column = jnp.clip(row, 0, height - 1), jnp.clip(column, 0, width - 1)
        left = jnp.minimum(jnp.floor(column), width - 2).astype(jnp.int32)
        below = jnp.minimum(jnp.floor(row), height - 2).astype(jnp.int32)
        right, up = column - left, row - below

        def pixel(y: Any, x: Any) -> Any:
            return jnp.maximum(frame[y, x], 0) if clip else frame[y, x]

        lower = (1 - right) * pixel(below, left) + right * pixel(below, left + 1)
        upper = (1 - right) * pixel(below + 1, left) + right * pixel(below + 1, left + 1)
        return (1 - up) * lower + up * upper, inside

    def frame_index(self, state: MovieState) -> Int[Array, ""]:
        """The index of the current frame."""
        seconds = state.start + state.steps * self.dt
        index = jnp.floor(seconds * self.frame_rate + ROUNDING).astype(jnp.int32)
        num_frames = self.frames.shape[0]
        return index % num_frames if self.end == "wrap" else jnp.minimum(index, num_frames - 1)
