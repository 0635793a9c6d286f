"""Grades of submissions: each is graded once, so that a replayed step gets the grade that was recorded."""

import threading
from collections.abc import Mapping
from hashlib import blake2b

from tropism.envs.coding.tasks import Task, split_command
from tropism.sandbox.grading import Grading, passes_command
from tropism.sandbox.pool import SandboxSpec

MAX_GRADES = 1024

_grades: dict[tuple[SandboxSpec, Task, str, bytes], tuple[bool, ...]] = {}  # oldest first
_lock = threading.Lock()


def grade(spec: SandboxSpec, task: Task, source: str, files: Mapping[str, bytes], episode: str) -> tuple[bool, ...]:
    """Whether each test of the task passes; `files` are those of the workspace, which only a command needs.

    `episode` identifies the episode up to this step.
    """
    key = spec, task, episode, _digest(source, files)
    with _lock:
        recorded = _grades.get(key)
    if recorded is not None:
        return recorded
    if task.command:
        passed = (passes_command(spec, split_command(task.command), {**files, **dict(task.hidden_files)}),)
    else:
        passed = Grading(spec, source, task.functions).run_tests(task.tests)
    with _lock:
        if len(_grades) >= MAX_GRADES:
            del _grades[next(iter(_grades))]
        return _grades.setdefault(key, passed)


def _digest(source: str, files: Mapping[str, bytes]) -> bytes:
    digest = blake2b(source.encode("utf-8", "surrogatepass"))
    for path, data in sorted(files.items()):
        digest.update(f"\0{path}\0{len(data)}\0".encode() + data)
    return digest.digest()
