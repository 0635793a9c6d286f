"""Hidden tests of a submission: tests and submission run in separate sandboxes and exchange only plain values.

So the submission can neither read the tests nor modify the code that runs them: it can only answer calls. Anything
it writes to its parent is treated as an answer and tested as such.
"""

import json
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tropism.sandbox.pool import SandboxSpec
from tropism.sandbox.process import WorkerReply, WorkerRequest
from tropism.sandbox.sandbox import Sandbox

RUN_MODULE = "runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
RUN_FILE = "runpy.run_path({!r}, run_name='__main__')"
TIME_FACTOR = 4  # all tests together may take this many times the limit of a step
SUBMISSION_ENDED = WorkerReply(b"X", b'["Exception", "the submission ended"]')


class Grading:
    """Runs the tests of one submission."""

    def __init__(self, spec: SandboxSpec, source: str, names: Sequence[str]):
        self._spec = spec
        self._source = source
        self._names = list(names)
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
        self._judge.start()
        request = WorkerRequest.start(self._spec.limits)
        reply = self._judge.send_request(b"T", json.dumps([test, self._names]).encode(), request)
        while reply.kind == b"C":
            answer = self._call_submission(reply.payload)
            reply = self._judge.send_request(answer.kind, answer.payload, request)
        if reply.kind != b"D":
            self._judge.close()
            return False
        return struct.unpack("<i", reply.payload)[0] == 0

    def _call_submission(self, call: bytes) -> WorkerReply:
        """The submission's reply to a call."""
        if not self._submission.is_started:
            self._submission.start().run(self._source)
        if not self._submission.is_started:
            return SUBMISSION_ENDED
        reply = self._submission.send_request(b"C", call, WorkerRequest.start(self._spec.limits))
        if reply.kind in (b"V", b"X"):
            return reply
        self._submission.close()
        return SUBMISSION_ENDED


def passes_command(spec: SandboxSpec, words: Sequence[str], files: Mapping[str, bytes]) -> bool:
    """Whether Python with these arguments, `-m MODULE ...` or `FILE ...`, exits with 0 in a new sandbox with these
    files. The tests are not isolated from the code that they test."""
    module, arguments = (words[1], words[2:]) if words[0] == "-m" else ("", words[1:])
    start = RUN_MODULE.format(module) if module else RUN_FILE.format(words[0])
    limits = replace(spec.limits, wall=TIME_FACTOR * spec.limits.wall, cpu=TIME_FACTOR * spec.limits.cpu)
    with Sandbox(spec) as sandbox:
        for path, data in files.items():
            sandbox.files.write(path, data)
        code = f"import runpy, sys\nsys.argv[:] = {[module or words[0], *arguments]!r}\n{start}"
        result = sandbox.run(code, limits, name="<command>")
    return result.exit_code == 0 and not result.interpreter_lost
