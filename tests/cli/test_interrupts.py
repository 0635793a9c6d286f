"""Ctrl-C at any time: exit code 130, one line, no traceback, and usable files."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.interrupting import STARTED, interrupt, start, wait_for

from tropism.train import checkpoint
from tropism.train.run import CHECKPOINT

SMALL = ("--num-envs", "4", "--num-steps", "16", "--total-steps", "640000")


def train(folder: Path, *more: str) -> subprocess.Popen[str]:
    return start(STARTED, "train", "CartPole-v1", "--out", str(folder), *SMALL, *more)


def check_folder(folder: Path) -> None:
    """No partial files, and any checkpoint is readable."""
    names = {path.name for path in folder.glob("*")}
    assert names <= {CHECKPOINT}
    if names:
        checkpoint.load(folder / CHECKPOINT)


def test_ctrl_c_during_imports(tmp_path: Path) -> None:
    processes = [train(tmp_path / "agent") for _ in range(2)]
    for process, delay in zip(processes, (0.1, 0.4), strict=True):
        time.sleep(delay)
        assert interrupt(process).startswith("Interrupted.")
    assert not (tmp_path / "agent" / CHECKPOINT).exists()


@pytest.mark.slow
def test_ctrl_c_during_compilation_reports_that_nothing_was_saved(tmp_path: Path) -> None:
    process = train(tmp_path)
    assert process.stderr is not None
    assert "Compilation takes" in process.stderr.readline()
    time.sleep(0.5)
    errors = interrupt(process)
    assert "Nothing was saved yet; start again with the same command." in errors
    check_folder(tmp_path)


@pytest.mark.slow
def test_ctrl_c_during_training_prints_the_resume_command(tmp_path: Path) -> None:
    process = train(tmp_path)
    wait_for(tmp_path / CHECKPOINT)
    time.sleep(0.5)
    errors = interrupt(process)
    assert f"Resume with: tropism train CartPole-v1 --out {tmp_path} --resume" in errors
    check_folder(tmp_path)
    saved = checkpoint.load_steps(tmp_path / CHECKPOINT)
    resumed = start(STARTED, "train", "CartPole-v1", "--out", str(tmp_path), "--resume", "--total-steps", str(saved))
    out, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    assert f"{saved:,} steps." in out


@pytest.mark.slow
def test_ctrl_c_with_force_before_the_first_checkpoint(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"another agent")
    process = train(tmp_path, "--force")
    assert process.stderr is not None
    process.stderr.readline()
    errors = interrupt(process)
    assert f"Nothing was saved yet, so {tmp_path} is unchanged" in errors
    assert (tmp_path / CHECKPOINT).read_bytes() == b"another agent"


def delays(first: float, factor: float, number: int, short: int) -> list[Any]:
    """Growing times in seconds; the short form of a test uses every `short`-th."""
    return [
        pytest.param(first * factor**k, marks=pytest.mark.full if k % short else pytest.mark.slow)
        for k in range(number)
    ]


@pytest.mark.parametrize("delay", delays(0.05, 1.25, 22, 5))  # up to 5.4 seconds
def test_ctrl_c_at_any_time_of_a_training(delay: float, tmp_path: Path) -> None:
    process = train(tmp_path)
    time.sleep(delay)
    interrupt(process)
    check_folder(tmp_path)


@pytest.mark.parametrize("delay", delays(0.1, 1.7, 8, 3))  # up to 4.1 seconds
@pytest.mark.parametrize("command", ["rollout CartPole-v1 --steps 9999999", "evaluate Pendulum-v1 --episodes 9999999"])
def test_ctrl_c_at_any_time_of_another_command(command: str, delay: float) -> None:
    process = start(STARTED, *command.split())
    time.sleep(delay)
    interrupt(process)


BLOCKED = """
import hashlib, threading
from tropism.cli.interrupts import interruptible
with interruptible(lambda: "Something is left."):
    threading.Timer(0.3, print, ["up"], {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # without Python for minutes, as XLA compiles
"""

FINALIZERS = """
import time
from tropism.cli.interrupts import interruptible
class Finalized:
    def __del__(self):
        time.sleep(0.01)  # an exception that is raised here is lost
with interruptible(lambda: "Something is left."):
    print("up", flush=True)
    while True:
        Finalized()
"""

FRAGILE = """
import time
from tropism.cli.interrupts import Interrupts
within = {"__name__": "jax.fake", "time": time}
exec("def trace():\\n    print('up', flush=True)\\n    end = time.monotonic() + 0.5\\n"
     "    while time.monotonic() < end: pass", within)
interrupts = Interrupts()
try:
    with interrupts.handle_signals():
        within["trace"]()
        whole = True
        while True:
            time.sleep(0.01)
except KeyboardInterrupt:
    print("whole" if whole else "broken")
    raise SystemExit(130 if interrupts.received else 1)
"""

DEAF = """
import hashlib, threading
from tropism.cli.interrupts import Interrupts
with Interrupts().handle_signals():
    threading.Timer(0.3, print, ["up"], {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""


@pytest.mark.parametrize("code", [BLOCKED, FINALIZERS], ids=["without Python", "in a finalizer"])
def test_ctrl_c_is_never_lost(code: str) -> None:
    assert interrupt(start(code)).startswith("Interrupted. Something is left.")


def test_ctrl_c_does_not_wait_for_a_command_that_cannot_clean_up() -> None:
    assert interrupt(start(DEAF)) == "Interrupted.\n"


def test_ctrl_c_does_not_interrupt_jax_callbacks() -> None:
    process = start(FRAGILE)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out, errors) == (130, "whole\n", "")
