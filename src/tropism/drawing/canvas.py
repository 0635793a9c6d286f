"""Draws shapes on a canvas with pure functions, under jit and vmap.

Lengths are pixels, the origin is the bottom-left corner and +y is up. A shape is a signed distance to
its edge, negative inside, so every edge is antialiased over one pixel.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, UInt8

Color = tuple[int, int, int]
Canvas = Float[Array, "height width 3"]

WHITE: Color = (255, 255, 255)
BLACK: Color = (0, 0, 0)
INK: Color = (52, 58, 64)
GREY: Color = (173, 181, 189)
PALE: Color = (233, 236, 239)
BLUE: Color = (34, 94, 168)
RED: Color = (224, 49, 49)
GREEN: Color = (47, 158, 68)
YELLOW: Color = (255, 212, 59)
BROWN: Color = (176, 122, 74)


def blank(height: int, width: int, color: Color = WHITE) -> Canvas:
    return jnp.broadcast_to(jnp.array(color, jnp.float32), (height, width, 3))


def finish(canvas: Canvas) -> UInt8[Array, "height width 3"]:
    return jnp.round(jnp.clip(canvas, 0, 255)).astype(jnp.uint8)


def pixels(canvas: Canvas) -> tuple[Float[Array, "1 width"], Float[Array, "height 1"]]:
    """The x and y of every pixel's centre."""
    height, width, _ = canvas.shape
    x = jnp.arange(width, dtype=jnp.float32) + 0.5
    y = height - 0.5 - jnp.arange(height, dtype=jnp.float32)
    return x[None, :], y[:, None]


def paint(canvas: Canvas, distance: Any, color: Any) -> Canvas:
    """Colour the pixels inside a shape, given each pixel's signed distance to its edge."""
    cover = jnp.clip(0.5 - distance, 0, 1).astype(jnp.float32)[..., None]
    return canvas + cover * (jnp.asarray(color, jnp.float32) - canvas)


def disc(canvas: Canvas, center: Any, radius: Any, color: Any) -> Canvas:
    x, y = pixels(canvas)
    return paint(canvas, jnp.hypot(x - center[0], y - center[1]) - radius, color)


def ring(canvas: Canvas, center: Any, radius: Any, thickness: Any, color: Any) -> Canvas:
    x, y = pixels(canvas)
    return paint(canvas, jnp.abs(jnp.hypot(x - center[0], y - center[1]) - radius) - thickness / 2, color)


def segment(canvas: Canvas, start: Any, end: Any, thickness: Any, color: Any) -> Canvas:
    """A straight line with round ends."""
    return paint(canvas, _distance_to_segment(canvas, start, end) - thickness / 2, color)


def path(canvas: Canvas, points: Float[Array, "points 2"], thickness: Any, color: Any) -> Canvas:
    """A line through any number of points."""

    def update_nearest(nearest: Any, ends: Any) -> tuple[Any, None]:
        return jnp.minimum(nearest, _distance_to_segment(canvas, *ends)), None

    far = jnp.full(canvas.shape[:2], jnp.inf)
    nearest, _ = lax.scan(update_nearest, far, (points[:-1], points[1:]))
    return paint(canvas, nearest - thickness / 2, color)


def _distance_to_segment(canvas: Canvas, start: Any, end: Any) -> Float[Array, "height width"]:
    """The distance of every pixel to a line segment."""
    x, y = pixels(canvas)
    along_x, along_y = end[0] - start[0], end[1] - start[1]
    length2 = jnp.maximum(along_x**2 + along_y**2, 1e-12)
    share = jnp.clip(((x - start[0]) * along_x + (y - start[1]) * along_y) / length2, 0, 1)
    return jnp.hypot(x - start[0] - share * along_x, y - start[1] - share * along_y)


def polygon(canvas: Canvas, corners: Any, color: Any) -> Canvas:
    """A filled convex polygon, with its corners in clockwise or counter-clockwise order."""
    x, y = pixels(canvas)
    starts = jnp.asarray(corners, jnp.float32)
    ends = jnp.roll(starts, -1, axis=0)
    edge = ends - starts
    orientation = jnp.sign(jnp.sum(starts[:, 0] * ends[:, 1] - starts[:, 1] * ends[:, 0]))
    normal = orientation * edge / jnp.maximum(jnp.linalg.norm(edge, axis=1, keepdims=True), 1e-6)
    outside = (x[..., None] - starts[:, 0]) * normal[:, 1] - (y[..., None] - starts[:, 1]) * normal[:, 0]
    return paint(canvas, jnp.max(outside, axis=-1), color)


def rectangle(canvas: Canvas, center: Any, size: Any, color: Any, angle: Any = 0.0) -> Canvas:
    """A filled rectangle of `size` (width, height), rotated counter-clockwise by `angle` radians."""
    x, y = pixels(canvas)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    across = (x - center[0]) * cos + (y - center[1]) * sin
    up = (y - center[1]) * cos - (x - center[0]) * sin
    return paint(canvas, jnp.maximum(jnp.abs(across) - size[0] / 2, jnp.abs(up) - size[1] / 2), color)


def enlarge(image: Any, factor: int) -> Array:
    """Scale an image up: every pixel becomes a square of `factor` × `factor` pixels."""
    return jnp.repeat(jnp.repeat(image, factor, axis=0), factor, axis=1)
