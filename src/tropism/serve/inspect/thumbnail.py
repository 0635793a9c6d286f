"""The thumbnail of an environment: a picture after some random steps, or its text."""

from typing import Any, NamedTuple

from jax import random

from tropism.core.session.session import Session
from tropism.serve.inspect.images import draw
from tropism.serve.session.environment import ServedEnvironment

SEED = 3
STEPS = 14  # at most; fewer if the episode ends earlier

PNG, TEXT = "image/png", "text/plain; charset=utf-8"


class Thumbnail(NamedTuple):
    media_type: str
    body: bytes


def thumbnail(environment: ServedEnvironment) -> Thumbnail:
    """A picture if the environment renders; otherwise the text of its first observation."""
    with environment.new_session() as session:
        session.reset(seed=SEED if environment.env.traits.seedable else None)
        if environment.env.pure:
            _step_randomly(session)
        picture = draw(session)
        return Thumbnail(TEXT, session.describe().encode()) if picture is None else Thumbnail(PNG, picture)


def _step_randomly(session: Session) -> None:
    """Take random steps, and stop before the one that ends the episode."""
    for steps in range(STEPS):
        timestep = session.step(_action(session, steps))
        if timestep.terminated or timestep.truncated:
            session.reset(seed=SEED)
            for again in range(steps):
                session.step(_action(session, again))
            return


def _action(session: Session, step: int) -> Any:
    return session.action_space.coerce(session.action_space.sample(random.fold_in(random.key(SEED), step)))
