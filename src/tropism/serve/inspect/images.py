"""Images of a session as PNG: the environment's picture, and image fields of the observation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tropism.core.session.session import Session
from tropism.errors import ValidationError
from tropism.serve.inspect.png import png
from tropism.serve.session.json_form import image_names


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
