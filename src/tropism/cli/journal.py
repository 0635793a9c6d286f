"""The commands journal info, check, salvage, forget and export."""

from pathlib import Path
from typing import Annotated

import typer

JournalPath = Annotated[Path, typer.Argument(metavar="FILE", help="The journal of a server that is not running.")]
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="A session id, or the key that `info` prints.")]


def info(path: JournalPath) -> None:
    """List the sessions of a journal."""
    from tropism.serve.storage.maintenance import open_journal, summaries

    with open_journal(path) as file:
        rows = summaries(file)
        print(f"{path}: {path.stat().st_size:,} bytes, {len(rows)} sessions, last durability {file.fact('durability')}")
        for row in rows:
            state = row.problem or ("its last steps may be lost" if row.is_doubtful else "can be resumed")
            hours = row.unused_seconds / 3600
            print(f"{row.key}  {row.environment}  {row.steps} steps  unused for {hours:.1f} h of running time  {state}")


def check(path: JournalPath) -> None:
    """Check a journal for damage; the exit code is 1 if there is any."""
    from tropism.serve.storage.maintenance import open_journal, problems

    with open_journal(path) as file:
        found = problems(file)
    print("\n".join(found) or f"{path}: no damage found")
    if found:
        raise typer.Exit(1)


def salvage(
    path: JournalPath,
    target: Annotated[Path, typer.Argument(metavar="NEW", help="The new journal file.")],
) -> None:
    """Copy every session that can be resumed from a damaged journal into a new one."""
    from tropism.serve.storage.maintenance import salvage as copy_sessions

    kept, lost = copy_sessions(path, target)
    print(f"{kept} sessions copied to {target}, {lost} lost")


def forget(path: JournalPath, session: SessionName) -> None:
    """Delete a session and erase its data from the file at once."""
    from tropism.serve.storage.maintenance import forget as delete_session
    from tropism.serve.storage.maintenance import open_journal

    with open_journal(path) as file:
        delete_session(file, session)
    print(f"session {session} deleted")


def export(path: JournalPath, session: SessionName) -> None:
    """Print a session and its entries as JSON, one object per line."""
    from tropism.serve.storage.maintenance import export as exported_lines
    from tropism.serve.storage.maintenance import open_journal

    with open_journal(path) as file:
        for line in exported_lines(file, session):
            print(line.decode())
