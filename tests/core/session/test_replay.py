"""Replays of sessions: the same timesteps, also after a reseed."""

from typing import Any

import numpy as np
import pytest

from tropism import Session, make
from tropism.core.session.replay import ReplayEntry, replay
from tropism.errors import DivergedError, StateError, ValidationError

RESET = ReplayEntry("reset", {"seed": 3, "options": None, "episode_id": "mine"})
STEPS = [ReplayEntry("step", column) for column in range(5)]
ENTRIES = [RESET, *STEPS[:2], ReplayEntry("reseed", 77), *STEPS[2:]]


def connect_four() -> Session:
    return Session(*make("ConnectFour-v0", opponent="random"))


def test_a_replay_repeats_the_episode():
    session, twin = connect_four(), connect_four()
    originals = [session.reset(seed=3, episode_id="mine"), session.step(0), session.step(1)]
    fork = session.fork(77)
    originals += [fork.step(column) for column in (2, 3, 4)]
    replayed = [twin.timestep for entry in replay(twin, ENTRIES) if entry.kind != "reseed"]
    for original, repeated in zip(originals, replayed, strict=True):
        assert np.array_equal(original.obs, repeated.obs)
        assert original[1:4] == repeated[1:4]
    assert (twin.seed, twin.episode_id, twin.step_count) == (77, "mine", 5)


def test_the_seed_of_a_reseed_matters():
    boards: list[Any] = []
    for seed in (77, 78, 79, 80):
        session = connect_four()
        entries = [entry._replace(value=seed) if entry.kind == "reseed" else entry for entry in ENTRIES]
        assert [entry.kind for entry in replay(session, entries)] == [entry.kind for entry in entries]
        boards.append(session.timestep.obs)
    assert not all(np.array_equal(boards[0], board) for board in boards)


def test_resets_and_steps_are_compared():
    seen: list[tuple[int, Any]] = []
    entries = [entry._replace(expected=number) for number, entry in enumerate(ENTRIES)]

    def compare(session: Session, expected: Any) -> None:
        seen.append((session.step_count, expected))
        if expected == 4:
            raise DivergedError("replay", expected, "no difference", "it differs")

    with pytest.raises(DivergedError, match="it differs"):
        list(replay(connect_four(), entries, compare))
    assert seen == [(0, 0), (1, 1), (2, 2), (3, 4)]


def test_only_an_episode_that_draws_from_keys_can_be_reseeded():
    with pytest.raises(StateError, match="cannot reseed"):
        connect_four().reseed(1)
    chat = Session(*make("Chat-v0"))
    chat.reset(seed=1)
    with pytest.raises(ValidationError, match="seed"):
        chat.reseed(2)
    assert chat.seed == 1
