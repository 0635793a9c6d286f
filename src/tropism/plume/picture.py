"""Pictures of a search: the plume, the agent and its trail, the source and its goal ring, the wind."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

from tropism.drawing import canvas as draw
from tropism.plume.scene import AgentPose, Arena, Scene, direction

MIN_SIDE = 480  # pixels, approximately
# Dark to light with even steps of lightness: equal ratios of concentration appear as equal steps.
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
FAINTEST = 2e-4  # fraction of the maximum concentration; fainter values are drawn as 0
AGENT, TRAIL, SOURCE, OBSTACLE = (255, 92, 56), (255, 255, 255), (255, 214, 10), (120, 120, 128)


def paint(scene: Scene, trail: Float[Array, "steps 2"], goal_radius: Any) -> UInt8[Array, "height width 3"]:
    """Draw the scene, +y up."""
    arena = scene.arena
    factor = max(1, MIN_SIDE // min(arena.shape))
    canvas = draw.enlarge(paint_plume(scene)[::-1], factor)
    low, high = jnp.stack(arena.low), jnp.stack(arena.high)
    last = jnp.array([arena.shape[1] - 1, arena.shape[0] - 1])
    scale = factor * last / (high - low)  # pixels per length unit

    def to_pixel(xy: Float[Array, "*points 2"]) -> Float[Array, "*points 2"]:
        return (xy - low) * scale + factor / 2

    if trail.shape[0] > 1:
        canvas = draw.path(canvas, to_pixel(trail), 2, TRAIL)
    source, agent = to_pixel(scene.source), to_pixel(scene.agent.xy)
    canvas = draw.ring(canvas, source, goal_radius * scale[0], 2, SOURCE)
    canvas = draw.disc(canvas, source, 4, SOURCE)
    head = agent + 14 * direction(scene.agent.heading)
    canvas = draw.segment(canvas, agent, head, 3, AGENT)
    canvas = draw.disc(canvas, agent, 7, AGENT)
    return draw.finish(_wind_arrow(canvas, scene))


def position_in_image(arena: Arena, agent: AgentPose) -> tuple[float, float]:
    """The position at which `paint` draws the agent, as fractions of width and height from the upper left."""
    height, width = arena.shape
    across, up = (
        ((float(at) - float(low)) / (float(high) - float(low)) * (cells - 1) + 0.5) / cells
        for at, low, high, cells in zip((agent.x, agent.y), arena.low, arena.high, (width, height), strict=True)
    )
    return across, 1 - up


def paint_plume(scene: Scene) -> Float[Array, "height width 3"]:
    """The concentration in colours, on a logarithmic scale; row 0 is the lowest y."""
    strength = scene.raster()
    fraction = strength / jnp.maximum(strength.max(), 1e-30)
    interpolated = colorize(1 - jnp.log(jnp.maximum(fraction, FAINTEST)) / jnp.log(FAINTEST))
    if scene.arena.obstacles is None:
        return interpolated
    return jnp.where(scene.arena.obstacles[..., None], jnp.array(OBSTACLE, jnp.float32), interpolated)


def colorize(level: Float[Array, "height width"]) -> Float[Array, "height width 3"]:
    """Levels from 0 to 1 as colours."""
    colors = jnp.array(COLORS, jnp.float32)
    position = jnp.clip(level, 0, 1) * (len(COLORS) - 1)
    step = jnp.minimum(position.astype(jnp.int32), len(COLORS) - 2)
    return colors[step] + (position - step)[..., None] * (colors[step + 1] - colors[step])


def _wind_arrow(canvas: Any, scene: Scene) -> Any:
    """Draw the wind at the agent in the upper left corner; no arrow if there is no wind."""
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
