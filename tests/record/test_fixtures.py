"""Committed recordings stay readable and replay bit for bit."""

import pytest
from tests.fixtures.sessions import FOLDER, RECORDED, STEPS

from tropism.record import Reader
from tropism.record.replay import first_difference, session_of


@pytest.mark.parametrize("id", RECORDED)
def test_a_committed_recording_replays(id: str):
    reader = Reader(FOLDER / "recordings" / id)
    assert [(episode.seed, len(episode)) for episode in reader] == [(3, STEPS), (4, STEPS)]
    with session_of(reader.manifest) as session:
        assert [first_difference(session, episode) for episode in reader] == [None, None]
