"""Replays recorded episodes and finds the first difference."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tropism.core.adapters.class_based import name_of
from tropism.core.episode import Timestep
from tropism.core.params import override, read_params
from tropism.core.registry import make
from tropism.core.resolve import resolve_environment
from tropism.core.session import replay as core_replay
from tropism.core.session.replay import ReplayEntry
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
    """A session of the recorded environment, created by its registered id."""
    recorded = manifest.env or {}
    if "gymnasium" in recorded:
        expected = "a registered id; tropism.gym.session_of makes environments that were recorded by a Gymnasium spec"
        raise ValidationError("env", recorded["gymnasium"].get("id"), expected)
    if "id" not in recorded:
        raise ValidationError("env", recorded.get("class"), EXPECTED.format(recorded.get("class") or "module:Class"))
    try:
        env, _ = make(recorded["id"], **recorded["arguments"])
    except UnknownEnvironmentError:
        raise ValidationError("env", recorded["id"], EXPECTED.format("module:Class")) from None
    return Session(env, read_params(env.default_params(), manifest.params))


def session_for_target(
    manifest: Manifest, target: str, params: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Session:
    """A session of `target`, a class or id, with the recorded params and arguments, overridden by the given ones."""
    recorded = manifest.env or {}
    env, _ = resolve_environment(target, {}, {**(recorded.get("arguments") or {}), **arguments})
    as_recorded = read_params(env.default_params(), manifest.params) if manifest.params else env.default_params()
    return Session(env, override(as_recorded, dict(params)))


def replay(session: Session, episode: RecordedEpisode) -> Iterator[Timestep]:
    """Replay an episode and yield the timesteps of its reset and its steps."""
    if not session.env.traits.replayable:
        message = f"{name_of(session.env)} declares that it cannot be replayed"
        raise StateError("replayable", False, "a replayable environment", message)
    if episode.seed is None:
        raise ValidationError("seed", None, f"a seed: episode {episode.number} was started without one")
    for entry in core_replay.replay(session, _entries(episode, session.env.traits.takes_episode_id)):
        if entry.kind in core_replay.TIMESTEPS:
            yield session.timestep


def _entries(episode: RecordedEpisode, takes_episode_id: bool) -> Iterator[ReplayEntry]:
    identity = episode.id if takes_episode_id else None
    yield ReplayEntry("reset", {"seed": episode.seed, "options": episode.options or None, "episode_id": identity})
    for step in range(1, len(episode) + 1):
        if step in episode.reseeds:
            yield ReplayEntry("reseed", episode.reseeds[step])
        yield ReplayEntry("step", episode.action(step))


def first_difference(session: Session, episode: RecordedEpisode) -> Difference | None:
    """None if the replay gives the same observations, rewards and flags, bit for bit.

    A replay that differs is repeated on XLA, whose bits do not depend on the native compiler.
    """
    found = _first_difference(session, episode)
    if found is None or not session.env.pure or session.engine == "xla":
        return found
    with Session(session.env, session.params, engine="xla") as repeated:
        return _first_difference(repeated, episode)


def _first_difference(session: Session, episode: RecordedEpisode) -> Difference | None:
    differences = (difference(episode, step, timestep) for step, timestep in enumerate(replay(session, episode)))
    return next((found for found in differences if found), None)


def difference(episode: RecordedEpisode, step: int, timestep: Timestep) -> Difference | None:
    """The first value of a replayed timestep that differs from the recorded one."""
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
