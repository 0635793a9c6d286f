"""Pictures of source tracking: the belief, the visited cells with their hits, the agent and the source."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from tropism.drawing import canvas as draw
from tropism.plume.picture import AGENT, MIN_SIDE, SOURCE, TRAIL, colorize

LINE_ROWS = 5  # height of a one-dimensional search, in cells


def paint(
    belief: Float[Array, "..."], hit_map: Int[Array, "..."], position: Int[Array, " dims"], source: Int[Array, " dims"]
) -> UInt8[Array, "height width 3"]:
    """Draw a search, +y up; in 3 dimensions seen along z.

    Visited cells have a dot, a large one where there were hits. A source at -1 is not drawn.
    """
    belief, hit_map = _to_plane(belief, jnp.sum), _to_plane(hit_map, jnp.max)
    factor = max(6, MIN_SIDE // max(belief.shape))
    canvas = draw.enlarge(colorize(jnp.sqrt(belief / belief.max())).swapaxes(0, 1)[::-1], factor)
    x, y = draw.pixels(canvas)
    to_middle = jnp.hypot(x % factor - factor / 2, y % factor - factor / 2)
    hits = draw.enlarge(hit_map.T[::-1], factor)
    radius = jnp.where(hits < 0, -1, jnp.where(hits == 0, 0.12, 0.3) * factor)
    canvas = draw.paint(canvas, to_middle - radius, TRAIL)
    canvas = draw.disc(canvas, _to_pixel(position, factor), 0.4 * factor, AGENT)
    ring = draw.ring(canvas, _to_pixel(source, factor), 0.5 * factor, max(2, factor / 8), SOURCE)
    return draw.finish(jnp.where(source[0] < 0, canvas, ring))


def position_in_image(shape: tuple[int, ...], position: Any) -> tuple[float, float]:
    """The position at which `paint` draws the agent, as fractions of width and height from the upper left."""
    if len(shape) == 1:
        return (float(position[0]) + 0.5) / shape[0], 0.5
    return (float(position[0]) + 0.5) / shape[0], 1 - (float(position[1]) + 0.5) / shape[1]


def _to_plane(cells: Array, reduce: Any) -> Array:
    if cells.ndim == 1:
        return jnp.repeat(cells[:, None], LINE_ROWS, 1)
    return cells if cells.ndim == 2 else reduce(cells, 2)


def _to_pixel(cell: Int[Array, " dims"], factor: int) -> Float[Array, " 2"]:
    row = cell[1] if cell.size > 1 else jnp.full_like(cell[0], LINE_ROWS // 2)
    return (jnp.stack([cell[0], row]) + 0.5) * factor
