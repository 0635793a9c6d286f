"""The grade of a submission."""

from collections.abc import Mapping

from tropism.envs.coding.tasks import Task, split_command
from tropism.sandbox.grading import Grading, passes_command
from tropism.sandbox.pool import SandboxSpec


def grade(spec: SandboxSpec, task: Task, source: str, files: Mapping[str, bytes]) -> tuple[bool, ...]:
    """Whether each test of the task passes; `files` are those of the workspace, which only a command needs."""
    if task.command:
        words, hidden = split_command(task.command), dict(task.hidden_files)
        return (passes_command(spec, words, files, hidden, task.shared_interpreter or not hidden),)
    return Grading(spec, source, task.functions).run_tests(task.tests)
