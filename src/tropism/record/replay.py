"""Lives recorded episodes through again, and says where one differs."""

import importlib
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from tropism.core.adapters.class_based import name_of
from tropism.core.environment import override
from tropism.core.episode import Timestep
from tropism.core.registry import make
from tropism.core.resolve import environment_of
from tropism.core.session.session import Session
from tropism.errors import StateError, UnknownEnvironmentError, ValidationError
from tropism.record.columns import same
from tropism.record.manifest import Manifest, params_of
from tropism.record.reader import Episode

HOW = "an id that is registered here; give the class that was recorded (--env {})"


class Difference(NamedTuple):
    """The first thing that a replay had otherwise; `step` 0 is the reset."""

    step: int
    name: str
    recorded: Any
    replayed: Any


def session_of(manifest: Manifest) -> Session:
    """A session of the environment that was recorded, made by its id here or in Gymnasium's registry."""
    if manifest.env is not None and "gymnasium" in manifest.env:  # which is an extra, and above this room
        made = importlib.import_module("tropism.gym.recording").make_registered(manifest.env["gymnasium"])
        return Session(importlib.import_module("tropism.gym.adapter").from_gymnasium(made))
    if manifest.env is None or "id" not in manifest.env:
        recorded = (manifest.env or {}).get("class")
        raise ValidationError("env", recorded, HOW.format(recorded or "module:Class"))
    try:
        env, _ = make(manifest.env["id"], **manifest.env["arguments"])
    except UnknownEnvironmentError:
        raise ValidationError("env", manifest.env["id"], HOW.format("module:Class")) from None
    return Session(env, params_of(env, manifest.params))


def session_with(manifest: Manifest, target: str, params: Mapping[str, Any], arguments: Mapping[str, Any]) -> Session:
    """A session of the class or id that `target` names, as it was recorded, except for what is given here."""
    recorded = manifest.env or {}
    env, _ = environment_of(target, {}, {**(recorded.get("arguments") or {}), **arguments})
    as_recorded = params_of(env, manifest.params) if manifest.params else env.default_params()
    return Session(env, override(as_recorded, dict(params)))


def replay(session: Session, episode: Episode) -> Generator[Timestep, None, None]:
    """The timesteps of the episode when its actions are taken again: its reset, then its steps."""
    with closing(sessions_of(session, episode)) as sessions:
        for each in sessions:
            yield each.timestep


def sessions_of(session: Session, episode: Episode) -> Generator[Session, None, None]:
    """The session after the reset and after each step of a replay; where the episode was reseeded, a fork goes on."""
    if not session.env.replayable:
        message = f"{name_of(session.env)} says that it cannot be replayed"
        raise StateError("replayable", False, "a replayable environment", message)
    if episode.seed is None:
        raise ValidationError("seed", None, f"a seed: episode {episode.number} was begun without one")
    identity = episode.id if session.env.identified else None
    session.reset(seed=episode.seed, options=episode.options or None, episode_id=identity)
    yield session
    with ExitStack() as forks:
        for step in range(1, len(episode) + 1):
            if step in episode.reseeds:
                session = forks.enter_context(session.fork(episode.reseeds[step]))
            session.step(episode.action(step))
            yield session


def first_difference(session: Session, episode: Episode) -> Difference | None:
    """None where the replay repeats every observation, reward and flag, bit for bit."""
    with closing(replay(session, episode)) as timesteps:
        return next((found for found in map(partial(_difference, episode), count(), timesteps) if found), None)


def _difference(episode: Episode, step: int, timestep: Timestep) -> Difference | None:
    column = episode.columns["obs"]
    recorded = {"obs": column.write(episode.observation(step))}
    replayed = {"obs": column.write(timestep.obs)}
    if step:
        recorded |= {"reward": episode.rewards[step - 1], "terminated": episode.terminated[step - 1]}
        recorded["truncated"] = episode.truncated[step - 1]
        replayed |= {"reward": timestep.reward, "terminated": timestep.terminated, "truncated": timestep.truncated}
    for name, value in recorded.items():
        if not same(value, replayed[name]):
            return Difference(step, name, value, replayed[name])
    return None
