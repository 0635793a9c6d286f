"""Replays recorded episodes and finds the first difference."""

import importlib
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from tropism.core.adapters.class_based import name_of
from tropism.core.episode import Timestep
from tropism.core.params import override, read_params
from tropism.core.registry import make
from tropism.core.resolve import resolve_environment
from tropism.core.session.session import Session
from tropism.errors import StateError, UnknownEnvironmentError, ValidationError
from tropism.record.columns import bitwise_equal
from tropism.record.manifest import Manifest
from tropism.record.reader import RecordedEpisode

EXPECTED = "a registered id; pass the recorded class with --env {}"


class Difference(NamedTuple):
    """The first value that differs in a replay; `step` 0 is the reset."""

    step: int
    name: str
    recorded: Any
    replayed: Any


def session_of(manifest: Manifest) -> Session:
    """A session of the recorded environment, created by its id in Tropism's or Gymnasium's registry."""
    if manifest.env is not None and "gymnasium" in manifest.env:  # an optional extra, in a higher layer
        made = importlib.import_module("tropism.gym.recording").make_registered(manifest.env["gymnasium"])
        return Session(importlib.import_module("tropism.gym.adapter").from_gymnasium(made))
    if manifest.env is None or "id" not in manifest.env:
        recorded = (manifest.env or {}).get("class")
        raise ValidationError("env", recorded, EXPECTED.format(recorded or "module:Class"))
    try:
        env, _ = make(manifest.env["id"], **manifest.env["arguments"])
    except UnknownEnvironmentError:
        raise ValidationError("env", manifest.env["id"], EXPECTED.format("module:Class")) from None
    return Session(env, read_params(env.default_params(), manifest.params))


def session_for_target(
    manifest: Manifest, target: str, params: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Session:
    """A session of `target`, a class or id, with the recorded params and arguments, overridden by the given ones."""
    recorded = manifest.env or {}
    env, _ = resolve_environment(target, {}, {**(recorded.get("arguments") or {}), **arguments})
    as_recorded = read_params(env.default_params(), manifest.params) if manifest.params else env.default_params()
    return Session(env, override(as_recorded, dict(params)))


def replay(session: Session, episode: RecordedEpisode) -> Generator[Timestep, None, None]:
    """Replay an episode and yield the timesteps of its reset and its steps."""
    with closing(replay_sessions(session, episode)) as sessions:
        for each in sessions:
            yield each.timestep


def replay_sessions(session: Session, episode: RecordedEpisode) -> Generator[Session, None, None]:
    """Replay an episode and yield the session after each step; reseeded steps continue in a fork."""
    if not session.env.traits.replayable:
        message = f"{name_of(session.env)} declares that it cannot be replayed"
        raise StateError("replayable", False, "a replayable environment", message)
    if episode.seed is None:
        raise ValidationError("seed", None, f"a seed: episode {episode.number} was started without one")
    identity = episode.id if session.env.traits.takes_episode_id else None
    session.reset(seed=episode.seed, options=episode.options or None, episode_id=identity)
    yield session
    with ExitStack() as forks:
        for step in range(1, len(episode) + 1):
            if step in episode.reseeds:
                session = forks.enter_context(session.fork(episode.reseeds[step]))
            session.step(episode.action(step))
            yield session


def first_difference(session: Session, episode: RecordedEpisode) -> Difference | None:
    """None if the replay gives the same observations, rewards and flags, bit for bit."""
    with closing(replay(session, episode)) as timesteps:
        return next((found for found in map(partial(_difference, episode), count(), timesteps) if found), None)


def _difference(episode: RecordedEpisode, step: int, timestep: Timestep) -> Difference | None:
    column = episode.columns["obs"]
    recorded = {"obs": column.write(episode.observation(step))}
    replayed = {"obs": column.write(timestep.obs)}
    if step:
        recorded |= {"reward": episode.rewards[step - 1], "terminated": episode.terminated[step - 1]}
        recorded["truncated"] = episode.truncated[step - 1]
        replayed |= {"reward": timestep.reward, "terminated": timestep.terminated, "truncated": timestep.truncated}
    for name, value in recorded.items():
        if not bitwise_equal(value, replayed[name]):
            return Difference(step, name, value, replayed[name])
    return None
