"""A sandbox: one interpreter of its own for one episode's code."""

import codecs
import struct
from dataclasses import dataclass

from tropism.errors import StateError
from tropism.sandbox.limits import Limits
from tropism.sandbox.pool import Cell, Tier, pool_of
from tropism.sandbox.process import LEAVING, Exchange, Printed, Reply, Worker


@dataclass(frozen=True)
class Result:
    """What a step of code came to. `lost`: the interpreter ended, and its variables with it."""

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    truncated_output: bool
    lost: bool
    tier: Tier


class Sandbox:
    """Variables live on from one `run` to the next, and are gone when the interpreter ends.

    >>> with Sandbox(Cell("A")) as sandbox:
    ...     sandbox.run("print(6 * 7)").stdout
    """

    def __init__(self, cell: Cell):
        self.cell = cell
        self._worker: Worker | None = None

    def start(self, seed: int | None = None) -> "Sandbox":
        """Take a worker; with a seed, the one its `random` begins with."""
        if self._worker is None:
            self._worker = pool_of(self.cell).take()
            if seed is not None:
                self._worker.tell(b"S", str(seed).encode())
        return self

    def run(self, code: str, limits: Limits | None = None, name: str = "<code>") -> Result:
        """Run code, within tighter limits of time and output where they are given; tracebacks call it `name`."""
        exchange = Exchange.begin(limits or self.cell.limits)
        reply = self.ask(b"P", name.encode() + b"\0" + code.encode("utf-8", "surrogatepass"), exchange)
        sound = reply.kind == b"D" and len(reply.payload) == 4
        code_ = struct.unpack("<i", reply.payload)[0] if sound else self._end(exchange)
        return Result(
            stdout=_text(exchange.out),
            stderr=_text(exchange.err),
            exit_code=code_,
            timed_out=exchange.timed_out,
            truncated_output=exchange.out.cut or exchange.err.cut,
            lost=not sound,
            tier=self.cell.tier,
        )

    def ask(self, kind: bytes, payload: bytes, exchange: Exchange) -> Reply:
        """One request of any kind; most callers want `run`."""
        if self._worker is None:
            raise StateError("sandbox", "not started", "start() first, and again after the interpreter was lost")
        return self._worker.ask(kind, payload, exchange)

    @property
    def started(self) -> bool:
        return self._worker is not None

    def close(self) -> None:
        """End the interpreter; closing twice is fine."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _end(self, exchange: Exchange) -> int:
        worker, self._worker = self._worker, None
        assert worker is not None
        return worker.end(0.0 if exchange.timed_out else LEAVING)

    def __enter__(self) -> "Sandbox":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()


def _text(printed: Printed) -> str:
    """Bytes that are no UTF-8 are shown as escapes; a character that was cut in two is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return decoder.decode(bytes(printed.data), final=not printed.cut)
