"""Laws of a session: immutability, snapshot, render, words."""

import json
from typing import Any

import jax
import numpy as np

from tropism.check.compare import difference, format_value, to_host
from tropism.check.context import CheckContext, compare_runs, play
from tropism.check.finding import Finding
from tropism.core.session.session import EnvironmentState, Session
from tropism.core.spaces import Record, Text
from tropism.errors import ValidationError

NONSENSE = "\x00 this is no action"
STEPS = 6


def check_immutability(context: CheckContext) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        # Called on the environment itself, since a session returns copies.
        returned = [(obs, to_host(obs)) for obs, *_ in context.play(context.fast, seed, actions)]
        for time, (obs, copied) in enumerate(returned):
            found = difference(obs, copied)
            if found is not None:
                place = "step" if time else "reset"
                return Finding(place, f"the observation of step {time} was changed by a later step: {found}")
        return _check_overwriting(context, seed, actions)

    return context.find_smallest(fails, STEPS, "session")


def _check_overwriting(context: CheckContext, seed: int, actions: list[Any]) -> Finding | None:
    with context.session() as session, context.session() as other:
        expected = [to_host(session.reset(seed=seed)), *play(session, actions)]
        _overwrite(other.reset(seed=seed).obs)
        actual = [expected[0]]
        for action in actions[: len(expected) - 1]:
            timestep = other.step(action)
            actual.append(to_host(timestep))
            _overwrite(timestep.obs)
    found = compare_runs("step", actual, expected)
    return found and found._replace(message=f"writing into a returned observation changed the episode: {found.message}")


def _overwrite(obs: Any) -> None:
    for leaf in jax.tree.leaves(obs):
        if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
            leaf[...] = 0


def check_snapshot(context: CheckContext) -> Finding | None:
    if not context.env.traits.replayable:
        return Finding("session", "replayable = False", "skipped")

    def fails(seed: int, actions: list[Any]) -> Finding | None:
        with context.session() as whole:
            expected = [to_host(whole.reset(seed=seed)), *play(whole, actions)]
        session = context.session()
        session.reset(seed=seed)
        half = len(list(play(session, actions[: len(actions) // 2])))
        restored = Session.restore(session.snapshot(), context.env, context.params)
        copies = {"the session itself": session, "the restored session": restored, "the fork": session.fork()}
        rest = {name: [to_host(copy.timestep)] for name, copy in copies.items()}
        for action in actions[half:]:  # interleaved, to detect state that they share
            for name, copy in copies.items():
                rest[name].extend(play(copy, [action]))
        for copy in copies.values():
            copy.close()
        for name, actual in rest.items():
            found = compare_runs("step", actual, expected[half:])
            if found is not None:
                return Finding(
                    "session", f"{name} does not continue like the episode from step {half}: {found.message}"
                )
        return None

    return context.find_smallest(fails, STEPS, "session")


def check_render(context: CheckContext) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        with context.session() as session, context.session() as other:
            expected = [to_host(session.reset(seed=seed)), *play(session, actions)]
            actual = [to_host(other.reset(seed=seed))]
            for time, action in enumerate([None, *actions[: len(expected) - 1]]):
                actual += [to_host(other.step(action))] if time else []
                frame = other.render()
                if frame is not None and not _is_image(frame):
                    layout = f"shape {np.shape(frame)}, {np.asarray(frame).dtype}"
                    return Finding("render", f"step {time}: the image is {layout}, not (H, W, 3) uint8")
        found = compare_runs("step", actual, expected)
        return found and Finding("render", f"rendering changed the episode: {found.message}")

    return context.find_smallest(fails, 2, "render")


def _is_image(frame: Any) -> bool:
    return isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3


def check_words(context: CheckContext) -> Finding | None:
    def fails(seed: int, actions: list[Any]) -> Finding | None:
        with context.session() as session:
            context.reset(session, seed)
            for action in [None, *actions]:
                if action is not None:
                    session.step(action)
                text = session.describe()
                if not isinstance(text, str) or not text:
                    return Finding("describe", f"returned {format_value(text)}, not text")
                if session.lifecycle is not EnvironmentState.READY:
                    break
        return None

    return context.find_smallest(fails, 2, "describe") or _check_parse(context)


def _check_parse(context: CheckContext) -> Finding | None:
    space = context.action_space
    for action in context.actions(context.seed, STEPS):
        text = space.to_json(action) if isinstance(space, Text) else json.dumps(space.to_json(action))
        parsed = context.env.parse(text, context.params)
        if difference(space.to_json(space.coerce(parsed)), space.to_json(action)):
            return Finding("parse", f"parse({text!r}) is {format_value(parsed)}, not the action it encodes")
    if isinstance(space, Text | Record):  # any text may be an action
        return None
    try:
        parsed = context.env.parse(NONSENSE, context.params)
    except ValidationError:
        return None
    return Finding("parse", f"parse({NONSENSE!r}) is {format_value(parsed)}, not a ValidationError")
