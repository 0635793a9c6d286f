"""The interpreter of an episode: a sandbox that can be recreated from what it has run."""

from collections.abc import Mapping
from typing import NamedTuple

from tropism.errors import DivergedError
from tropism.sandbox.files import SandboxFiles
from tropism.sandbox.pool import SandboxSpec
from tropism.sandbox.sandbox import ExecutionResult, Sandbox


class TranscriptEntry(NamedTuple):
    code: str
    result: ExecutionResult


class UploadedFile(NamedTuple):
    """A file that was written from outside."""

    path: str
    data: bytes


Transcript = tuple[TranscriptEntry | UploadedFile, ...]


class Interpreter:
    """A sandbox and the transcript of what it has run. After the worker has ended, another one is started, with the
    `files` of the task and the uploaded ones."""

    def __init__(self, sandbox_spec: SandboxSpec, seed: int, files: Mapping[str, bytes]):
        self.transcript: Transcript | None = ()
        self._sandbox = Sandbox(sandbox_spec)
        self._seed = seed
        self._files = dict(files)
        self.recalled: tuple[bool, ...] | None = None  # the grade of the next step, if it is replayed

    def take_recalled(self) -> tuple[bool, ...] | None:
        recalled, self.recalled = self.recalled, None
        return recalled

    def run(self, code: str, step: int) -> ExecutionResult:
        return self._running_sandbox().run(code, name=f"<step {step}>")

    def files(self) -> SandboxFiles:
        return self._running_sandbox().files

    def write(self, path: str, data: bytes) -> None:
        self.files().write(path, data)
        self._files[path] = data

    def read_files(self) -> dict[str, bytes]:
        return self.files().read_all()

    def _running_sandbox(self) -> Sandbox:
        if not self._sandbox.is_started:
            self._sandbox.start(self._seed)
            for path, data in self._files.items():
                self._sandbox.files.write(path, data)
        return self._sandbox

    def replay(self, transcript: Transcript) -> None:
        """Replay the transcript from the last interpreter restart and compare the results."""
        restarts = (number for number, entry in enumerate(transcript, 1) if _loses_interpreter(entry))
        restart = max(restarts, default=0)
        before, after = transcript[:restart], transcript[restart:]
        self._files |= dict(entry for entry in before if isinstance(entry, UploadedFile))
        step = sum(isinstance(entry, TranscriptEntry) for entry in before)
        for entry in after:
            if isinstance(entry, UploadedFile):
                self.write(*entry)
                continue
            step += 1
            if self.run(entry.code, step) != entry.result:
                self.close()
                message = f"step {step} gave another result when the episode was replayed"
                raise DivergedError("replay", step, "the same output", message)
        self.transcript = transcript

    def close(self) -> None:
        self.transcript = None
        self._sandbox.close()


def _loses_interpreter(entry: TranscriptEntry | UploadedFile) -> bool:
    return isinstance(entry, TranscriptEntry) and entry.result.interpreter_lost
