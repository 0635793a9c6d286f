"""Laws of a session: immutability, snapshot, render, words."""

import json
from typing import Any

import jax
import numpy as np

from tropism.check.compare import difference, host, spell
from tropism.check.context import Subject, compare_runs, play
from tropism.check.finding import Finding
from tropism.core.session.session import EnvironmentState, Session
from tropism.core.spaces import Record, Text
from tropism.errors import ValidationError

NONSENSE = "\x00 this is no action"
STEPS = 6


def check_immutability(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        # Of the environment itself: a session hands out copies.
        seen = [(obs, host(obs)) for obs, *_ in subject.play(subject.fast, seed, actions)]
        for time, (obs, was) in enumerate(seen):
            found = difference(obs, was)
            if found is not None:
                place = "step" if time else "reset"
                return Finding(place, f"the observation of step {time} was changed by a later step: {found}")
        return _check_scribbling(subject, seed, actions)

    return subject.smallest(fails, STEPS, "session")


def _check_scribbling(subject: Subject, seed: int, actions: list[Any]) -> Finding | None:
    with subject.session() as session, subject.session() as other:
        expected = [host(session.reset(seed=seed)), *play(session, actions)]
        _scribble(other.reset(seed=seed).obs)
        seen = [expected[0]]
        for action in actions[: len(expected) - 1]:
            timestep = other.step(action)
            seen.append(host(timestep))
            _scribble(timestep.obs)
    found = compare_runs("step", seen, expected)
    return found and found._replace(message=f"writing into a returned observation changed the episode: {found.message}")


def _scribble(obs: Any) -> None:
    for leaf in jax.tree.leaves(obs):
        if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
            leaf[...] = 0


def check_snapshot(subject: Subject) -> Finding | None:
    if not subject.env.replayable:
        return Finding("session", "replayable = False", "skipped")

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        with subject.session() as whole:
            expected = [host(whole.reset(seed=seed)), *play(whole, actions)]
        session = subject.session()
        session.reset(seed=seed)
        half = len(list(play(session, actions[: len(actions) // 2])))
        restored = Session.restore(session.snapshot(), subject.env, subject.params)
        copies = {"the session itself": session, "the restored session": restored, "the fork": session.fork()}
        rest = {name: [host(copy.timestep)] for name, copy in copies.items()}
        for action in actions[half:]:  # in turn, so that they would disturb each other
            for name, copy in copies.items():
                rest[name].extend(play(copy, [action]))
        for copy in copies.values():
            copy.close()
        for name, seen in rest.items():
            found = compare_runs("step", seen, expected[half:])
            if found is not None:
                return Finding("session", f"{name} does not go on as the episode did from step {half}: {found.message}")
        return None

    return subject.smallest(fails, STEPS, "session")


def check_render(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        with subject.session() as session, subject.session() as other:
            expected = [host(session.reset(seed=seed)), *play(session, actions)]
            seen = [host(other.reset(seed=seed))]
            for time, action in enumerate([None, *actions[: len(expected) - 1]]):
                seen += [host(other.step(action))] if time else []
                frame = other.render()
                if frame is not None and not _is_picture(frame):
                    kind = f"shape {np.shape(frame)}, {np.asarray(frame).dtype}"
                    return Finding("render", f"step {time}: the picture is {kind}, not (H, W, 3) uint8")
        found = compare_runs("step", seen, expected)
        return found and Finding("render", f"rendering changed the episode: {found.message}")

    return subject.smallest(fails, 2, "render")


def _is_picture(frame: Any) -> bool:
    return isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3


def check_words(subject: Subject) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        with subject.session() as session:
            subject.reset(session, seed)
            for action in [None, *actions]:
                if action is not None:
                    session.step(action)
                text = session.describe()
                if not isinstance(text, str) or not text:
                    return Finding("describe", f"returned {spell(text)}, not words")
                if session.lifecycle is not EnvironmentState.READY:
                    break
        return None

    return subject.smallest(fails, 2, "describe") or _check_parse(subject)


def _check_parse(subject: Subject) -> Finding | None:
    space = subject.action_space
    for action in subject.actions(subject.seed, STEPS):
        text = space.to_json(action) if isinstance(space, Text) else json.dumps(space.to_json(action))
        parsed = subject.env.parse(text, subject.params)
        if difference(space.to_json(space.coerce(parsed)), space.to_json(action)):
            return Finding("parse", f"parse({text!r}) is {spell(parsed)}, not the action it spells")
    if isinstance(space, Text | Record):  # any words may be an action
        return None
    try:
        parsed = subject.env.parse(NONSENSE, subject.params)
    except ValidationError:
        return None
    return Finding("parse", f"parse({NONSENSE!r}) is {spell(parsed)}, not a ValidationError")
