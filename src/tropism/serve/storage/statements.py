"""SQL statements of the journal, and groups of them."""

from typing import Any

from tropism.serve.storage.protocol import Entry, Ticket

Line = tuple[int, int, Entry]  # session, seq, entry
Statement = tuple[str, tuple[Any, ...]]

INSERT_SESSION = "insert into sessions values (?, ?, ?, ?, ?, ?, 0, 0, null)"
INSERT_SESSION_ROW = "insert into sessions values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
BEGIN_EPISODE = "update sessions set begin = ?, reached = ?, snapshot = null, used = ? where number = ?"
SAVE_SNAPSHOT = "update sessions set reached = ?, snapshot = ?, used = ? where number = ?"
DELETE_OLD_EPISODES = """
delete from episodes where session = ? and last < ? and not exists (
  select 1 from notes where notes.session = episodes.session and kind = 'snapshot' and begin <= last and first < seq
)
"""
DELETE_REPLIES = "delete from notes where session = ? and kind = 'reply'"
INSERT_NOTE = "insert into notes(session, kind, begin, seq, entry) values (?, ?, ?, ?, ?)"
SELECT_NUMBER = "select number from sessions where key = ?"
SELECT_SESSION = """
select number, begin, reached, snapshot,
  exists (select 1 from doubtful where session = number), environment, variant, owner
from sessions where key = ?
"""
SELECT_EXPIRED = "select number from sessions where used < ?"
DELETE_BETWEEN = "delete from episodes where session = ? and first >= ? and last < ?"
SESSION_TABLES = (
    ("episodes", "session"),
    ("notes", "session"),
    ("doubtful", "session"),
    ("sessions", "number"),
)
MARK_ALL_DOUBTFUL = "insert or ignore into doubtful select number from sessions"
MARK_DOUBTFUL = "insert or ignore into doubtful select number from sessions where number = ?"
CLEAR_DOUBT = "delete from doubtful where session = ?"
SAVE_FACT = "insert or replace into facts values (?, ?)"
UPDATE_USED = "update sessions set used = ? where number = ?"


class WriteGroup(Ticket):
    """Writes to commit together, and the keys of their sessions."""

    __slots__ = ("keys", "lines", "statements")

    def __init__(self) -> None:
        super().__init__(pending=True)
        self.lines: list[Line] = []
        self.statements: list[Statement] = []
        self.keys: set[bytes] = set()

    @property
    def empty(self) -> bool:
        return not self.lines and not self.statements


def delete_statements(number: int) -> list[Statement]:
    return [(f"delete from {table} where {column} = ?", (number,)) for table, column in SESSION_TABLES]
