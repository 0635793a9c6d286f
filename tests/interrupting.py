"""Processes that tests interrupt by Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Prints a line as soon as Python itself is up, whose own start cannot be handled; then it is `python -m tropism`.
STARTED = "import runpy, sys; print('up', flush=True); runpy.run_module('tropism', run_name='__main__', alter_sys=True)"


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that handles Ctrl-C, also if the tests run as a background job, and wait for its first line."""
    command = ["env", "--default-signal=INT", sys.executable, "-c", code, *arguments]
    # Nothing compiled is read from disk: compiling takes its time.
    variables = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def interrupt(process: subprocess.Popen[str], timeout: float = 20) -> str:
    """Send Ctrl-C, check how the process ends, and return its stderr."""
    process.send_signal(signal.SIGINT)
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 130, errors
    assert "Traceback" not in out + errors
    assert "Exception" not in out + errors
    assert errors.count("Interrupted.") == 1
    return errors


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
