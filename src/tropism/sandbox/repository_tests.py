"""Runs the test command of a repository; its source is sent to a sandbox, with a call of `main` added.

If the submission is in another sandbox, the exit code of the tests is the verdict. In a shared interpreter the
submission could change it, so it must also be true that tests have passed, that none was skipped, that the submission
has not exited, and that the test framework is unchanged.
"""

import builtins
import os
import runpy
import sys
import unittest
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from tropism.sandbox.remote_objects import Remote, RemoteModules

WORKSPACE = os.getcwd()
FRAMEWORK = ("case", "loader", "main", "mock", "result", "runner", "signals", "suite", "util")


class RepositoryResult(unittest.TextTestResult):
    """Counts the tests that pass; in a shared interpreter it detects a changed framework."""

    passed = skipped_tests = 0
    watch: "FrameworkWatch | None" = None

    def startTestRun(self) -> None:  # noqa: N802  unittest's name
        if self.watch is not None:
            self.watch.add_tests()
        super().startTestRun()

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802  unittest's name
        RepositoryResult.passed += 1
        super().addSuccess(test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802  unittest's name
        RepositoryResult.skipped_tests += 1
        super().addSkip(test, reason)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802  unittest's name
        if self.watch is not None:
            self.watch.check()
        super().stopTest(test)


class FrameworkWatch:
    """Remembers the functions of the built-in module, of unittest and of the hidden tests."""

    def __init__(self, hidden: set[str]):
        modules = [sys.modules[f"unittest.{name}"] for name in FRAMEWORK if f"unittest.{name}" in sys.modules]
        self._hidden = hidden
        self._before: list[tuple[Any, dict[str, Any]]] = []
        self.changed = False
        for module in (unittest, *modules):
            self._remember(module)
        self._before.append((builtins, dict(vars(builtins))))

    def add_tests(self) -> None:
        """Remember the hidden tests, which are imported by now."""
        self.check()
        for module in list(sys.modules.values()):
            if os.path.abspath(getattr(module, "__file__", None) or "/") in self._hidden:
                self._remember(module)

    def _remember(self, module: ModuleType) -> None:
        classes = [each for each in vars(module).values() if isinstance(each, type)]
        for owner in (module, *classes):
            functions = (FunctionType, classmethod, staticmethod, property, type)
            self._before.append((owner, {n: each for n, each in vars(owner).items() if isinstance(each, functions)}))

    def check(self) -> None:
        intact = sys.modules.get("unittest") is unittest and "__getattribute__" not in vars(unittest.TestCase)
        same = all(vars(owner).get(name) is value for owner, members in self._before for name, value in members.items())
        self.changed = self.changed or not intact or not same


def exits_in_submission(trace: TracebackType | None, hidden: set[str]) -> bool:
    """Whether a call passes through a file of the workspace that is not hidden."""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename  # like <test> for the code of this module
        path = os.path.abspath(name)
        if not name.startswith("<") and path not in hidden and path.startswith(f"{WORKSPACE}/"):
            return True
        trace = trace.tb_next
    return False


def run_python(words: list[str], hidden: set[str]) -> Any:
    """Run Python with these arguments, `-m MODULE ...` or `FILE ...`; returns its exit code."""
    module, arguments = (words[1], words[2:]) if words[0] == "-m" else ("", words[1:])
    path = os.path.abspath(words[0])
    sys.argv[:] = [module or words[0], *arguments]
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            sys.path.append(os.path.dirname(path))
            runpy.run_path(path, run_name="__main__")
    except SystemExit as stop:
        return "the submission has exited" if exits_in_submission(stop.__traceback__, hidden) else stop.code
    return 0


def main(words: list[str], hidden_files: list[str], modules: dict[str, bool] | None, channel: Any = None) -> Any:
    """Returns an exit code, or a message. `modules` are those of a submission in another sandbox."""
    hidden = {os.path.abspath(path) for path in hidden_files}
    unittest.TextTestRunner.resultclass = RepositoryResult  # pyright: ignore[reportAttributeAccessIssue]
    watch = None
    if modules is None:
        watch = RepositoryResult.watch = FrameworkWatch(hidden)
    else:
        sys.meta_path.insert(0, RemoteModules(Remote(channel), modules))
    code = run_python(words, hidden)
    if code:
        return code
    uses_unittest = words[:2] == ["-m", "unittest"] or RepositoryResult.passed + RepositoryResult.skipped_tests > 0
    if uses_unittest and not RepositoryResult.passed:
        return "no test has passed"
    if watch is not None:
        watch.check()
        if watch.changed:
            return "the submission has changed the test framework"
        if RepositoryResult.skipped_tests:
            return "a test was skipped"
    return 0
