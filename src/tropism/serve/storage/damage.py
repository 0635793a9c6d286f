"""What happened to a journal since it was last open: a reboot, or a damaged write-ahead log."""

import logging
from pathlib import Path

from tropism.errors import ServerError
from tropism.serve.storage.sqlite_file import SqliteFile
from tropism.serve.storage.statements import MARK_ALL_DOUBTFUL, WriteGroup

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

logger = logging.getLogger("tropism.serve")


def current_boot_id() -> str:
    """Identifies the time since the machine was started; empty where the system has none."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""


def report_damage(file: SqliteFile, durability: str, boot_id: str) -> None:
    """Mark sessions as doubtful whose last entries may be lost, log the reason, and note who has the file open now."""
    rebooted = (
        file.fact("boot_id") not in (None, boot_id) and file.fact("is_open") and file.fact("durability") != "power"
    )
    if file.discarded_commits:
        message = "the logs of the journal are damaged: %d commits were discarded; %s"
        logger.error(message, file.discarded_commits, CONSEQUENCE)
    elif rebooted:
        message = "the machine stopped while a server with --durability process was running: commits may be lost; %s"
        logger.warning(message, CONSEQUENCE)
    try:
        if rebooted or file.discarded_commits:
            file.write(WriteGroup([(MARK_ALL_DOUBTFUL, ())]))
        file.save_facts(boot_id=boot_id, durability=durability, is_open=True)
        file.sync()
    except (ServerError, OSError) as error:  # a full disk: the sessions can be read and closed
        logger.error("the journal cannot be written: %s", error)


CONSEQUENCE = "the next step of each session must say where its caller expects the episode (after)"
