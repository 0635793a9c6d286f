"""The tables of a journal, and how its SQLite file is opened."""

import os
import sqlite3
from pathlib import Path

from tropism.errors import ValidationError

APPLICATION = 0x54524F50  # "TROP", which identifies the file to SQLite's tools
VERSION = 2
WAL_BYTES = 2**23  # of the write-ahead log after a checkpoint
FURTHER_TABLES = """
create table if not exists facts(name text primary key, value);  -- about the server that last wrote the file
create table if not exists doubtful(session integer primary key);  -- sessions whose last entries may be lost
create table if not exists discarded(  -- entries to delete; closed sessions are only here
  session integer primary key,
  before integer not null  -- of a closed session, above every seq
);
"""
SCHEMA = f"""
begin;
create table sessions(
  number integer primary key,
  key blob unique not null,
  environment text not null,
  variant text not null,     -- JSON: arguments, and params by name
  owner text not null,
  used real not null,        -- seconds on the server's running clock
  begin integer not null,    -- seq of the current episode's reset
  reached integer not null,  -- seq of the first entry after the snapshot
  snapshot blob
);
create table log(number integer primary key, entries text not null);  -- entries committed with other changes
create table episodes(       -- entries of one session, in pieces
  session integer not null, first integer not null, last integer not null, entries text not null,
  primary key (session, first)
);
create table notes(          -- snapshots of episodes, and replies that a replay does not reproduce
  number integer primary key,
  session integer not null,
  kind text not null,
  begin integer not null,    -- seq of the reset of its episode
  seq integer not null,      -- of the first entry after it
  entry text not null
);
create index notes_by_session on notes(session);
{FURTHER_TABLES}
pragma application_id = {APPLICATION};
pragma user_version = {VERSION};
commit;
"""
# Which records are this journal's, and the last one moved to the table of episodes. The first journals have no log.
CREATE_LOG = """
begin;
create table if not exists append_log(mark blob not null, moved integer not null);
insert into append_log select randomblob(8), 0 where not exists (select 1 from append_log);
commit;
"""


def default_path(host: str, port: int) -> Path:
    """The default journal of the server at this address."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "tropism" / f"{host.replace(':', '_')}-{port}.journal"


def open_database(path: Path) -> sqlite3.Connection:
    """Open or create the file, and lock it; the lock ends with the process."""
    if path.is_dir():
        raise unusable_journal(path, "a file; this is a directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)  # readable by its owner only
    except OSError as error:
        raise unusable_journal(path, f"a file that can be written ({error.strerror})") from None
    file = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        _prepare(file, path)
    except BaseException as error:
        file.close()
        if not isinstance(error, sqlite3.Error):
            raise
        busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
        raise unusable_journal(
            path,
            "one that no other server has open; is one running at this address?" if busy else f"a journal ({error})",
        ) from None
    return file


def _prepare(file: sqlite3.Connection, path: Path) -> None:
    # One connection and no shared memory. This also avoids the lost commits of SQLite before 3.51.3, which take two
    # connections.
    file.execute("pragma locking_mode = exclusive")
    file.execute("pragma page_size = 1024")  # for a new file: most commits change a page or two
    file.execute("pragma auto_vacuum = incremental")  # for a new file: it can shrink
    file.execute("pragma journal_mode = wal")
    file.execute(f"pragma journal_size_limit = {WAL_BYTES}")
    file.execute("pragma wal_autocheckpoint = 4096")  # pages; each checkpoint waits for the disk
    file.execute("pragma secure_delete = on")  # the data of closed sessions is overwritten
    file.execute("pragma temp_store = memory")  # otherwise parts of rows are in files that are not erased
    file.execute("pragma synchronous = normal")  # a power failure loses the last commits, not the file
    (application,) = file.execute("pragma application_id").fetchone()
    (version,) = file.execute("pragma user_version").fetchone()
    (tables,) = file.execute("select count(*) from sqlite_master").fetchone()
    if not tables:
        file.executescript(SCHEMA)
        application, version = APPLICATION, VERSION
    if application != APPLICATION:
        raise unusable_journal(path, "a journal, or a path without a file; it is the database of another program")
    if version != VERSION:
        raise unusable_journal(
            path,
            f"a journal of version {VERSION}; this one has version {version}, whose sessions this release cannot "
            "resume: finish them with the release that wrote it, or delete the file",
        )
    file.executescript(FURTHER_TABLES + CREATE_LOG)


def unusable_journal(path: Path, expected: str) -> ValidationError:
    return ValidationError(
        "journal", str(path), f"{expected}; choose another with --journal, or none with --durability off"
    )
