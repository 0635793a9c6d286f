"""Recorded games, and their verification by replay."""

from pathlib import Path

from tropism import Session, make
from tropism.record import Reader, first_difference, session_of
from tropism.serve.session.environment import ServedEnvironment


def verify(folder: Path, session: Session | None = None) -> Reader:
    """The recordings in a folder, after a replay of each."""
    reader = Reader(folder)
    session = session or session_of(reader.manifest)
    assert [first_difference(session, episode) for episode in reader] == [None] * len(reader)
    return reader


def game() -> dict[str, ServedEnvironment]:
    return {"ConnectFour-v0": ServedEnvironment("ConnectFour-v0", *make("ConnectFour-v0", opponent="random"), "")}
