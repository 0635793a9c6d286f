"""Counts the descendants of a process."""

import os
import time
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


def stable_count() -> int:
    """The number of descendants once it no longer changes: spare workers are started in the background."""
    last = -1
    for _ in range(20):
        now = count_children()
        if now == last:
            break
        last = now
        time.sleep(0.3)
    return last
