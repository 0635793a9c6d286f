"""Laws of a session: immutability, snapshot, render, words."""

import json
from typing import Any

import jax
import numpy as np

from tropism.check.compare import compare_runs, difference, format_value, layout, to_host
from tropism.check.context import CheckContext, episode
from tropism.check.law import law, on_episodes
from tropism.check.law_error import LawError
from tropism.core.session.session import EnvironmentState, Session
from tropism.core.spaces import Record, Text
from tropism.errors import ValidationError

NONSENSE = "\x00 this is no action"
STEPS = 6
STORED = ("seedable", "replayable")


@law("immutability", "a returned observation never changes", "episodes", needs=("seedable",))
@on_episodes(STEPS, "session")
def check_immutability(context: CheckContext, seed: int, actions: list[Any]) -> None:
    # Called on the environment itself, since a session returns copies.
    returned = [(obs, to_host(obs)) for obs, *_ in context.play(context.fast, seed, actions)]
    for time, (obs, copied) in enumerate(returned):
        found = difference(obs, copied)
        if found is not None:
            place = "step" if time else "reset"
            raise LawError(place, f"the observation of step {time} was changed by a later step: {found}")
    overwritten, expected = context.run_session(seed, actions, _overwrite), context.run_session(seed, actions)
    compare_runs(overwritten, expected, "writing into a returned observation changed the episode: ")


def _overwrite(_session: Session, obs: Any) -> None:
    for leaf in jax.tree.leaves(obs):
        if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
            leaf[...] = 0


@law("snapshot", "snapshot, restore and fork continue identically", "instances", "immutability", needs=STORED)
@on_episodes(STEPS, "session")
def check_snapshot(context: CheckContext, seed: int, actions: list[Any]) -> None:
    expected = context.run_session(seed, actions)
    with context.session() as session:
        half = len(list(episode(session, seed, actions[: len(actions) // 2]))) - 1
        with Session.restore(session.snapshot(), context.env, context.params) as restored, session.fork() as fork:
            copies = {"the session itself": session, "the restored session": restored, "the fork": fork}
            runs = {name: [to_host(copy.timestep)] for name, copy in copies.items()}
            for action in actions[half:]:  # interleaved, to detect state that they share
                for name, copy in copies.items():
                    if copy.lifecycle is EnvironmentState.READY:
                        runs[name].append(to_host(copy.step(action)))
    for name, run in runs.items():
        continues = f"{name} does not continue like the episode from step {half}: "
        compare_runs(run, expected[half:], continues, place="session")


@law("render", "render returns (H, W, 3) uint8 or None and changes nothing", "episodes", needs=("seedable",))
@on_episodes(2, "render")
def check_render(context: CheckContext, seed: int, actions: list[Any]) -> None:
    expected = context.run_session(seed, actions)
    rendered = context.run_session(seed, actions, _check_frame)
    compare_runs(rendered, expected, "rendering changed the episode: ", place="render")


def _check_frame(session: Session, _obs: Any) -> None:
    frame = session.render()
    if frame is not None and not _is_image(frame):
        raise LawError("render", f"step {session.step_count}: the image is {layout(frame)}, not (H, W, 3) uint8")


def _is_image(frame: Any) -> bool:
    return isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3


@law("words", "describe returns text; parse reads actions and rejects other text", "episodes")
def check_words(context: CheckContext) -> None:
    _check_describe(context)
    _check_parse(context)


@on_episodes(2, "describe")
def _check_describe(context: CheckContext, seed: int, actions: list[Any]) -> None:
    context.run_session(seed, actions, _check_text)


def _check_text(session: Session, _obs: Any) -> None:
    text = session.describe()
    if not isinstance(text, str) or not text:
        raise LawError("describe", f"returned {format_value(text)}, not text")


def _check_parse(context: CheckContext) -> None:
    space = context.action_space
    for action in context.actions(context.seed, STEPS):
        text = space.to_json(action) if isinstance(space, Text) else json.dumps(space.to_json(action))
        parsed = context.env.parse(text, context.params)
        if difference(space.to_json(space.coerce(parsed)), space.to_json(action)):
            raise LawError("parse", f"parse({text!r}) is {format_value(parsed)}, not the action it encodes")
    if isinstance(space, Text | Record):  # any text may be an action
        return
    try:
        parsed = context.env.parse(NONSENSE, context.params)
    except ValidationError:
        return
    raise LawError("parse", f"parse({NONSENSE!r}) is {format_value(parsed)}, not a ValidationError")
