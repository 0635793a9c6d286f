"""What an environment looks like: a picture of it after some random steps, or its words."""

from typing import Any, NamedTuple

from jax import random

from tropism.core.session.session import Session
from tropism.serve.inspect.images import draw
from tropism.serve.session.environment import ServedEnvironment

SEED = 3
STEPS = 14  # into the episode, or as far as it goes

PNG, TEXT = b"image/png", b"text/plain; charset=utf-8"


class Portrait(NamedTuple):
    media_type: bytes
    body: bytes


def portrait(environment: ServedEnvironment) -> Portrait:
    """Drawn where the environment draws itself; what an agent reads first where it speaks only."""
    with environment.fresh() as session:
        session.reset(seed=SEED if environment.env.seedable else None)
        if environment.env.traced:
            _wander(session)
        picture = draw(session)
        return Portrait(TEXT, session.describe().encode()) if picture is None else Portrait(PNG, picture)


def _wander(session: Session) -> None:
    """Random steps, up to the last one before the episode ends."""
    for steps in range(STEPS):
        timestep = session.step(_action(session, steps))
        if timestep.terminated or timestep.truncated:
            session.reset(seed=SEED)
            for again in range(steps):
                session.step(_action(session, again))
            return


def _action(session: Session, step: int) -> Any:
    return session.action_space.coerce(session.action_space.sample(random.fold_in(random.key(SEED), step)))
