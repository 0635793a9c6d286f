"""The tables of a Postgres journal, and the migrations between their versions."""

from typing import Any, LiteralString

from tropism.errors import ValidationError

LOCK = 0x54524F50  # of the migrations, so that workers that start together run them once

MIGRATIONS: tuple[LiteralString, ...] = (
    """
    create table sessions(
      key bytea primary key,
      environment text not null,
      variant text not null,             -- JSON: arguments, and params by name
      owner text not null,
      worker text not null,              -- the holder of the lease
      token bigint not null,             -- of the current claim
      expires timestamptz not null,      -- the end of the lease
      used timestamptz not null default now(),
      begin bigint not null default 0,   -- seq of the current episode's reset
      reached bigint not null default 0, -- seq of the first entry after the snapshot
      snapshot bytea
    );
    create index sessions_by_use on sessions(used);
    create table entries(
      key bytea not null references sessions on delete cascade, seq bigint not null, entry text not null,
      primary key (key, seq)
    );
    create table notes(                  -- snapshots of episodes, and replies that a replay does not reproduce
      number bigserial primary key,
      key bytea not null references sessions on delete cascade,
      kind text not null,
      begin bigint not null,             -- seq of the reset of its episode
      seq bigint not null,               -- of the first entry after it
      entry text not null
    );
    create index notes_by_session on notes(key);
    """,
    """
    -- The running time of all workers, so that deletion by age does not depend on the system's clock.
    create table clock(seconds double precision not null, ticks bigint not null);
    insert into clock values (0, 0);
    alter table sessions drop column used;
    alter table sessions add used double precision not null default 0; -- seconds on that clock
    create index sessions_by_use on sessions(used);
    alter table sessions add agent bytea unique;  -- digest of the agent id
    alter table sessions add sealed_id bytea;     -- the session's id, which only the agent id unseals
    """,
)


def migrate(connection: Any, location: str) -> None:
    """Bring the tables to the newest version; raises a ValidationError if they are newer than this release."""
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (LOCK,))
        connection.execute("create schema if not exists tropism")
        connection.execute("create table if not exists tropism.version(number integer not null)")
        (number,) = connection.execute("select coalesce(max(number), 0) from tropism.version").fetchone()
        if number > len(MIGRATIONS):
            expected = f"a journal of version {len(MIGRATIONS)} or older; this one has version {number}"
            raise ValidationError("journal", location, f"{expected}, written by a newer Tropism")
        connection.execute("set search_path to tropism")
        for migration in MIGRATIONS[number:]:
            connection.execute(migration)
        connection.execute("delete from version")
        connection.execute("insert into version values (%s)", (len(MIGRATIONS),))
