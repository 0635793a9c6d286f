"""A sandbox: a separate interpreter for the code of one episode."""

import codecs
import contextlib
import struct
from dataclasses import dataclass

from tropism.errors import StateError, ValidationError
from tropism.sandbox.cgroup import ControlGroup
from tropism.sandbox.files import SandboxFiles
from tropism.sandbox.limits import Limits
from tropism.sandbox.monitor import MAX_FILES
from tropism.sandbox.pool import SandboxSpec, Tier, shared_pool
from tropism.sandbox.process import EXIT_TIMEOUT, CapturedStream, Worker, WorkerReply, WorkerRequest

NEWLINE = "\n"


@dataclass(frozen=True)
class ExecutionResult:
    """The result of one step of code. `interpreter_lost`: the interpreter ended; its variables are lost."""

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    truncated_output: bool
    interpreter_lost: bool
    tier: Tier


class Sandbox:
    """Variables persist between calls of `run` until the interpreter ends.

    >>> with Sandbox(SandboxSpec("A")) as sandbox:
    ...     sandbox.run("print(6 * 7)").stdout
    """

    def __init__(self, spec: SandboxSpec, archive: bytes | None = None):
        """`archive` has the first files of a shell, packed by `SandboxFiles.pack`."""
        self.spec = spec
        self._archive = archive  # of the files with which a worker starts
        self._worker: Worker | None = None

    def start(self, seed: int | None = None) -> "Sandbox":
        """Take a worker from the pool, unless started; `seed` seeds its module `random`."""
        if self._worker is None:
            self._worker = shared_pool(self.spec).take()
            if self.spec.shell:
                self._worker.join(ControlGroup(self.spec.limits.memory, self.spec.limits.threads))
            if self._archive is not None:
                self.files.unpack(self._archive)
            if seed is not None:
                self._worker.notify(b"S", str(seed).encode())
        return self

    def run(self, code: str, limits: Limits | None = None, name: str = "<code>") -> ExecutionResult:
        """Run code, with other limits of time and output if given; `name` is the file name in tracebacks.

        If another thread closes the sandbox meanwhile, the result is that of an interpreter that was killed.
        """
        request = WorkerRequest.start(limits or self.spec.limits)
        worker = self._started_worker()
        reply = worker.send_request(b"P", name.encode() + b"\0" + code.encode("utf-8", "surrogatepass"), request)
        completed = reply.kind == b"D" and len(reply.payload) == 4
        exit_code = struct.unpack("<i", reply.payload)[0] if completed else self._end(worker, request)
        stderr = _text(request.err)
        if not completed:
            reason = f"{_explain(request, exit_code, self.spec.shell)}; {self._loss()}"
            stderr += f"{'' if stderr[-1:] in ('', NEWLINE) else NEWLINE}[sandbox] {reason}\n"
        return ExecutionResult(
            stdout=_text(request.out),
            stderr=stderr,
            exit_code=exit_code,
            timed_out=request.timed_out,
            truncated_output=request.out.truncated or request.err.truncated,
            interpreter_lost=not completed,
            tier=self.spec.tier,
        )

    def send_request(self, kind: bytes, payload: bytes, request: WorkerRequest) -> WorkerReply:
        """Send a request of any kind; most callers need only `run`."""
        return self._started_worker().send_request(kind, payload, request)

    def _started_worker(self) -> Worker:
        if self._worker is None:
            raise StateError("sandbox", "not started", "start() first, and again after the interpreter was lost")
        return self._worker

    @property
    def files(self) -> SandboxFiles:
        """The files in /tmp, of which tier B has none."""
        worker = self._started_worker()
        if not worker.has_files:
            message = "a sandbox of tier B has no workspace, because nothing is writable in it; tier A has one"
            raise StateError("tier", self.spec.tier, "tier A", message)
        return SandboxFiles(worker)

    @property
    def is_started(self) -> bool:
        return self._worker is not None

    def close(self) -> None:
        """End the interpreter, also during a step of another thread; closing twice is fine."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def _end(self, worker: Worker, request: WorkerRequest) -> int:
        if self._worker is worker:
            self._worker = None
        if self.spec.shell:
            worker.kill()
            self._archive = None
            with contextlib.suppress(
                StateError, ValidationError, OSError
            ):  # closed by another thread; or too many files
                self._archive = SandboxFiles(worker).pack()
        return worker.end(0.0 if request.exceeded else EXIT_TIMEOUT)

    def _loss(self) -> str:
        """What was lost with the worker."""
        if not self.spec.shell:
            return "all variables are lost"
        return "its files are lost, because there were too many" if self._archive is None else "its files are kept"

    def __enter__(self) -> "Sandbox":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()


def _explain(request: WorkerRequest, exit_code: int, shell: bool) -> str:
    """Why the worker ended."""
    limits = request.limits
    reasons = {
        "wall": f"the step was stopped because it took longer than {limits.wall:g} s",
        "cpu": f"the step was stopped because it used more than {limits.cpu:g} s of CPU time",
        "memory": "the step was stopped because it used too much memory",
        "threads": f"the step was stopped because it had more than {limits.threads} threads",
        "files": f"the step was stopped because it had more than {MAX_FILES} files",
    }
    ended = f"was killed by signal {-exit_code}" if exit_code < 0 else f"exited with code {exit_code}"
    program = "shell" if shell else "interpreter"
    return reasons[request.exceeded] if request.exceeded else f"the {program} {ended}"


def _text(stream: CapturedStream) -> str:
    """Decode the output: invalid UTF-8 as escapes, without a character that was truncated."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return decoder.decode(bytes(stream.data), final=not stream.truncated)
