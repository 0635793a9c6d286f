"""Pictures of a search: the plume, the agent and its trail, the source and its goal ring, the wind."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from tropism.drawing import canvas as draw
from tropism.plume.scene import Agent, Arena, Scene, direction

SMALLEST_SIDE = 480  # pixels, about
# Dark to light with even steps of lightness, so that equal ratios of smell look like equal steps.
COLORS = (
    (13, 17, 38),
    (33, 40, 93),
    (46, 74, 140),
    (45, 118, 155),
    (54, 161, 147),
    (122, 198, 118),
    (205, 225, 92),
    (255, 247, 178),
)
FAINTEST = 2e-4  # of the strongest smell; what is fainter is drawn as none
AGENT, TRAIL, SOURCE, OBSTACLE = (255, 92, 56), (255, 255, 255), (255, 214, 10), (120, 120, 128)


def paint(scene: Scene, trail: Float[Array, "steps 2"], goal_radius: Any) -> UInt8[Array, "height width 3"]:
    """The scene, +y up."""
    arena = scene.arena
    factor = max(1, SMALLEST_SIDE // min(arena.shape))
    canvas = draw.enlarge(plume(scene)[::-1], factor)
    low, high = jnp.stack(arena.low), jnp.stack(arena.high)
    last = jnp.array([arena.shape[1] - 1, arena.shape[0] - 1])
    scale = factor * last / (high - low)  # pixels a length unit

    def pixel(xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return (xy - low) * scale + factor / 2

    if trail.shape[0] > 1:
        canvas = draw.path(canvas, pixel(trail), 2, TRAIL)
    source, agent = pixel(scene.source), pixel(scene.agent.xy)
    canvas = draw.ring(canvas, source, goal_radius * scale[0], 2, SOURCE)
    canvas = draw.disc(canvas, source, 4, SOURCE)
    nose = agent + 14 * direction(scene.agent.heading)
    canvas = draw.segment(canvas, agent, nose, 3, AGENT)
    canvas = draw.disc(canvas, agent, 7, AGENT)
    return draw.finish(_wind_arrow(canvas, scene))


def spot(arena: Arena, agent: Agent) -> tuple[float, float]:
    """Where `paint` draws the agent: shares of width and height from the upper left."""
    height, width = arena.shape
    across, up = (
        ((float(at) - float(low)) / (float(high) - float(low)) * (cells - 1) + 0.5) / cells
        for at, low, high, cells in zip((agent.x, agent.y), arena.low, arena.high, (width, height), strict=True)
    )
    return across, 1 - up


def plume(scene: Scene) -> Float[Array, "height width 3"]:
    """The concentration in colours, on a logarithmic scale; row 0 is the lowest y."""
    strength = scene.raster()
    share = strength / jnp.maximum(strength.max(), 1e-30)
    level = 1 - jnp.log(jnp.maximum(share, FAINTEST)) / jnp.log(FAINTEST)
    colors = jnp.array(COLORS, jnp.float32)
    place = jnp.clip(level, 0, 1) * (len(COLORS) - 1)
    step = jnp.minimum(place.astype(jnp.int32), len(COLORS) - 2)
    mixed = colors[step] + (place - step)[..., None] * (colors[step + 1] - colors[step])
    if scene.arena.obstacles is None:
        return mixed
    return jnp.where(scene.arena.obstacles[..., None], jnp.array(OBSTACLE, jnp.float32), mixed)


def _wind_arrow(canvas: Any, scene: Scene) -> Any:
    """In the upper left corner, along the wind at the agent; none where the air is still."""
    wind = scene.wind(scene.agent.xy)
    speed = jnp.sqrt(jnp.sum(wind * wind))
    along = wind / jnp.maximum(speed, 1e-9)
    middle = jnp.array([36.0, canvas.shape[0] - 36.0])
    tip, tail = middle + 20 * along, middle - 20 * along
    left, right = (tip - 10 * (along + side * jnp.array([-along[1], along[0]])) for side in (0.7, -0.7))
    drawn = canvas
    for start, end in ((tail, tip), (tip, left), (tip, right)):
        drawn = draw.segment(drawn, start, end, 3, TRAIL)
    return jnp.where(speed > 0, drawn, canvas)
