"""The parent's side of a measurement: a worker process that keeps running, so that repeats can be interleaved."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.comparison import Comparison
from benchmarks.peers import ROOT, UnavailableError, python_of


def worker_environment(library: str, comparison: Comparison, checkout: Path) -> dict[str, str]:
    """The environment variables of a worker: Tropism from a source tree, accelerator peers from `.carry/`."""
    paths = [checkout, checkout / "src"] if library == "tropism" else [ROOT]
    if not comparison.accelerator:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "JAX_PLATFORMS": "cpu"}
    paths.append(ROOT / ".carry")
    # Two processes share one accelerator, so neither may preallocate its memory.
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


class Worker:
    """One library in one process; Tropism may come from another checkout."""

    def __init__(self, library: str, comparison: Comparison, checkout: Path = ROOT):
        local = library == "tropism" or comparison.accelerator
        python = sys.executable if local else python_of(library)
        self.library = library
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        self.child = subprocess.Popen(
            [python, "-m", f"benchmarks.workers.{library}"],
            cwd=checkout if local else ROOT / ".peers" / library,  # PufferLib creates a link in its working directory
            env=worker_environment(library, comparison, checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.errors.close()

    def exchange(self, **request: Any) -> dict[str, Any]:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        try:
            print(json.dumps(request), file=self.child.stdin, flush=True)
            line = self.child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise UnavailableError(self.last_error_line())
        return json.loads(line)

    def last_error_line(self) -> str:
        self.child.wait()
        self.errors.seek(0)
        lines = self.errors.read().splitlines()
        print("\n".join(lines[-20:]), file=sys.stderr)
        return lines[-1] if lines else f"{self.library} stopped with exit code {self.child.returncode}"
