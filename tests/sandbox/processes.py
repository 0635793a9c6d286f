"""Counts the descendants of a process."""

import os
from pathlib import Path


def count_children() -> int:
    """The number of descendants of this process: bubblewrap's processes and the workers inside."""
    waiting, count = [os.getpid()], 0
    while waiting:
        tasks = Path(f"/proc/{waiting.pop()}/task").glob("*/children")
        found = [int(pid) for task in tasks for pid in task.read_text().split()]
        waiting += found
        count += len(found)
    return count
