"""Hidden tests of a submission: the tests run in one sandbox, the submission in another, and only values travel.

So the submission can neither see the tests nor touch what judges it: all it can do is to answer calls. Whatever it
writes to its own parent is an answer too, and right or wrong like any other.
"""

import json
import struct
import time
from collections.abc import Sequence

from tropism.sandbox.pool import Cell
from tropism.sandbox.process import Exchange, Reply
from tropism.sandbox.sandbox import Sandbox

PATIENCE = 4  # times the limit of a step, for all tests together
GONE = Reply(b"X", b'["RuntimeError", "the submission ended"]')


class Grading:
    """One submission before its judge."""

    def __init__(self, cell: Cell, source: str, names: Sequence[str]):
        self._cell = cell
        self._source = source
        self._names = list(names)
        self._submission, self._judge = Sandbox(cell), Sandbox(cell)

    def passed(self, tests: Sequence[str]) -> int:
        """How many of the tests it passes; those that there was no time for are not passed."""
        deadline = time.monotonic() + PATIENCE * self._cell.limits.wall
        try:
            return sum(time.monotonic() < deadline and self._passes(test) for test in tests)
        finally:
            self._submission.close()
            self._judge.close()

    def _passes(self, test: str) -> bool:
        self._judge.start()
        exchange = Exchange.begin(self._cell.limits)
        reply = self._judge.ask(b"T", json.dumps([test, self._names]).encode(), exchange)
        while reply.kind == b"C":
            answer = self._answer(reply.payload)
            reply = self._judge.ask(answer.kind, answer.payload, exchange)
        if reply.kind != b"D":
            self._judge.close()
            return False
        return struct.unpack("<i", reply.payload)[0] == 0

    def _answer(self, call: bytes) -> Reply:
        """What the submission says to a call."""
        if not self._submission.started:
            self._submission.start().run(self._source)
        if not self._submission.started:
            return GONE
        reply = self._submission.ask(b"C", call, Exchange.begin(self._cell.limits))
        if reply.kind in (b"V", b"X"):
            return reply
        self._submission.close()
        return GONE
