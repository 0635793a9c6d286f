"""Images of a session as PNG: the environment's picture, and image fields of the observation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tropism.core.session.session import Session
from tropism.core.spaces import Box, Dict, Space
from tropism.errors import ValidationError
from tropism.serve.inspect.png import png

WHOLE = "value"  # the name of an observation without fields
CHANNELS = (1, 3)  # greyscale, or RGB


def image_names(space: Space) -> tuple[str, ...]:
    """The fields of an observation that are images."""
    if isinstance(space, Dict):
        return tuple(name for name, part in space.spaces.items() if _is_image(part))
    return (WHOLE,) if _is_image(space) else ()


def _is_image(space: Space) -> bool:
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[2] in CHANNELS


def draw(session: Session, of: str | None = None) -> bytes | None:
    """The environment's picture, or the image in the field `of` of the observation.

    Falls back to the first image of the observation if the environment does not render; None if there is none.
    """
    names = image_names(session.observation_space)
    if of is not None:
        if of not in names:
            expected = f"a field of the observation that is an image: {', '.join(names) or 'it has none'}"
            raise ValidationError("of", of, expected)
        return png(_field(session, of))
    picture = session.render()
    if picture is not None:
        return png(np.asarray(picture))
    return png(_field(session, names[0])) if names else None


def _field(session: Session, name: str) -> Any:
    obs = session.timestep.obs
    return np.asarray(obs[name] if isinstance(obs, Mapping) else obs)
