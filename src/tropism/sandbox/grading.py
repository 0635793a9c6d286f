"""Hidden tests of a submission: tests and submission run in separate sandboxes and exchange only plain values.

So the submission can neither read the tests nor modify the code that runs them: it can only answer calls. Anything
it writes to its parent is treated as an answer and tested as such.
"""

import json
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.machinery import all_suffixes

from tropism.sandbox.limits import Limits
from tropism.sandbox.mounts import mounts_for
from tropism.sandbox.pool import SandboxSpec, module_source
from tropism.sandbox.process import WorkerReply, WorkerRequest
from tropism.sandbox.sandbox import Sandbox

TIME_FACTOR = 4  # all tests together may take this many times the limit of a step
SUBMISSION_ENDED = WorkerReply(b"X", b'["Exception", "the submission ended"]')
# Files of a submission with which pytest could exit successfully without running a test.
SETTINGS = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
CALLS = (b"C", b"O")  # kinds of frames that a test sends to the submission

Files = Mapping[str, bytes]


class Grading:
    """Runs the tests of one submission; `files` are those of its sandbox, and `test_files` those of the tests. The
    limits are those of one test."""

    def __init__(
        self,
        spec: SandboxSpec,
        source: str,
        names: Sequence[str],
        limits: Limits | None = None,
        files: Files | None = None,
        test_files: Files | None = None,
    ):
        self._spec = spec
        self._limits = limits or spec.limits
        self._source = source
        self._names = list(names)
        self._files, self._test_files = files or {}, test_files or {}
        self._submission, self._judge = Sandbox(spec), Sandbox(spec)

    def run_tests(self, tests: Sequence[str]) -> tuple[bool, ...]:
        """Whether each test passes; tests not run before the deadline count as failed."""
        deadline = time.monotonic() + TIME_FACTOR * self._spec.limits.wall
        try:
            return tuple(time.monotonic() < deadline and self._passes(test) for test in tests)
        finally:
            self._submission.close()
            self._judge.close()

    def _passes(self, test: str) -> bool:
        _start(self._judge, self._test_files)
        request = WorkerRequest.start(self._limits)
        reply = self._judge.send_request(b"T", json.dumps([test, self._names]).encode(), request)
        while reply.kind in CALLS:
            answer = self._call_submission(reply)
            reply = self._judge.send_request(answer.kind, answer.payload, request)
        if reply.kind != b"D":
            self._judge.close()
            return False
        return struct.unpack("<i", reply.payload)[0] == 0

    def _call_submission(self, call: WorkerReply) -> WorkerReply:
        """The submission's reply to a call."""
        if not self._submission.is_started:
            _start(self._submission, self._files)
            self._submission.run(self._source)
        if not self._submission.is_started:
            return SUBMISSION_ENDED
        reply = self._submission.send_request(call.kind, call.payload, WorkerRequest.start(self._spec.limits))
        if reply.kind in (b"V", b"X"):
            return reply
        self._submission.close()
        return SUBMISSION_ENDED


def _start(sandbox: Sandbox, files: Files) -> None:
    if not sandbox.is_started:
        sandbox.start()
        for path, data in files.items():
            sandbox.files.write(path, data)


def passes_command(spec: SandboxSpec, words: Sequence[str], files: Files, hidden: Files, shared: bool) -> bool:
    """Whether Python with these arguments, `-m MODULE ...` or `FILE ...`, passes the tests in the hidden files.

    `shared`: the tests and the submission, which has the other files, run in one interpreter.
    """
    limits = replace(spec.limits, wall=TIME_FACTOR * spec.limits.wall, cpu=TIME_FACTOR * spec.limits.cpu)
    files = {path: data for path, data in files.items() if path not in hidden and _is_graded(path, spec)}
    call = f"{list(words)!r}, {list(hidden)!r}"
    source = module_source("repository_tests")
    if shared:
        with Sandbox(spec) as sandbox:
            for path, data in {**files, **hidden}.items():
                sandbox.files.write(path, data)
            result = sandbox.run(f"{source}\nsys.exit(main({call}, None))", limits, name="<command>")
        return result.exit_code == 0 and not result.interpreter_lost
    data_files = {path: data for path, data in files.items() if not path.endswith(tuple(all_suffixes()))}
    test = f"{source}\nsys.exit(main({call}, {_remote_modules(spec, files, hidden)!r}, __channel__))"
    grading = Grading(spec, "", (), limits, files, {**data_files, **hidden})
    return all(grading.run_tests([test]))


def _is_graded(path: str, spec: SandboxSpec) -> bool:
    """Whether a file is part of a submission: not if it has settings of the tests, or replaces other files."""
    replaces_package = path.partition("/")[0].removesuffix(".py") in _package_names(spec)
    return not (replaces_package or path.endswith(".pyc") or path.rpartition("/")[2] in SETTINGS)


def _package_names(spec: SandboxSpec) -> set[str]:
    return {name for name, _ in mounts_for(spec.packages).packages}


def _remote_modules(spec: SandboxSpec, files: Files, hidden: Files) -> dict[str, bool]:
    """The names of a submission's modules, each with whether it is a package. They cannot replace modules of the
    standard library, of allowed packages, or of hidden files, whichever of their folders is on the path."""
    others = sys.stdlib_module_names | _package_names(spec)
    modules: dict[str, bool] = {}
    for path in (path for path in files if path.endswith(".py")):
        *folders, name = path.removesuffix(".py").split("/")
        modules |= {".".join(folders[:end]): True for end in range(1, len(folders) + 1)}
        modules |= {} if name == "__init__" else {".".join([*folders, name]): False}
    hidden_parts = [path.removesuffix(".py").removesuffix("/__init__").split("/") for path in hidden]
    hidden_modules = {".".join(parts[start:]) for parts in hidden_parts for start in range(len(parts))}
    return {
        name: package
        for name, package in modules.items()
        if name not in hidden_modules and name.partition(".")[0] not in others
    }
