"""SQL statements of the journal, and groups of them."""

from typing import Any

from tropism.serve.storage.protocol import Entry, Ticket

Line = tuple[int, int, Entry]  # session, seq, entry
Statement = tuple[str, tuple[Any, ...]]

INSERT_SESSION = "insert into sessions values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
BEGIN_EPISODE = "update sessions set begin = ?, reached = ?, snapshot = null, used = ? where number = ?"
SAVE_SNAPSHOT = "update sessions set reached = ?, snapshot = ?, used = ? where number = ?"
ALL_SEQS = 2**62  # above every seq
FIRST_OLD_PIECE = """
select rowid from episodes where session = ?1 and last < ?2 and not exists (
  select 1 from notes where notes.session = ?1 and kind = 'snapshot' and begin <= last and first < seq
) limit 1
"""
DELETE_OLD_PIECE = f"delete from episodes where rowid = ({FIRST_OLD_PIECE})"
DISCARD_OLD_PIECES = f"insert or replace into discarded select ?1, ?2 where exists ({FIRST_OLD_PIECE})"
DELETE_NOTE = """
delete from notes where number = (
  select number from notes where session = ?1 and not exists (select 1 from sessions where number = ?1) limit 1
)
"""
SELECT_DISCARDED = "select session, before from discarded order by session"
DELETE_DISCARDED = "delete from discarded where session = ? and before = ?"
DELETE_REPLIES = "delete from notes where session = ? and kind = 'reply'"
INSERT_NOTE = "insert into notes(session, kind, begin, seq, entry) values (?, ?, ?, ?, ?)"
SELECT_NUMBER = "select number from sessions where key = ?"
SELECT_SESSION = """
select number, begin, reached, snapshot,
  exists (select 1 from doubtful where session = number), environment, variant, owner
from sessions where key = ?
"""
SELECT_LAST_NUMBER = "select max(number) from (select number from sessions union select session from discarded)"
SELECT_EXPIRED = "select number from sessions where used < ?"
DELETE_BETWEEN = "delete from episodes where session = ? and first >= ? and last < ?"
CLOSE_SESSION = (  # its entries and notes are deleted later, in pieces
    f"insert or replace into discarded select number, {ALL_SEQS} from sessions where number = ?",
    "delete from doubtful where session = ?",
    "delete from sessions where number = ?",
)
MARK_ALL_DOUBTFUL = "insert or ignore into doubtful select number from sessions"
MARK_DOUBTFUL = "insert or ignore into doubtful select number from sessions where number = ?"
CLEAR_DOUBT = "delete from doubtful where session = ?"
SAVE_FACT = "insert or replace into facts values (?, ?)"
UPDATE_USED = "update sessions set used = ? where number = ?"


class WriteGroup(Ticket):
    """Writes to commit together, and the keys of their sessions."""

    __slots__ = ("keys", "lines", "statements")

    def __init__(self, statements: list[Statement] | None = None) -> None:
        super().__init__(pending=True)
        self.lines: list[Line] = []
        self.statements: list[Statement] = [] if statements is None else statements
        self.keys: set[bytes] = set()

    @property
    def empty(self) -> bool:
        return not self.lines and not self.statements


def close_statements(number: int) -> list[Statement]:
    return [(sql, (number,)) for sql in CLOSE_SESSION]
