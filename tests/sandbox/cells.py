"""Sandboxes to test with: every tier that can be had here, and code run without any, to compare with."""

import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tropism.sandbox.launcher import USER, Launcher
from tropism.sandbox.limits import Limits
from tropism.sandbox.pool import TIERS, Cell, Tier, refusal
from tropism.sandbox.sandbox import Result
from tropism.sandbox.view import view_of

SOMEBODY = 1234  # a user that is neither root nor the one workers have

every_tier = pytest.mark.parametrize("tier", TIERS)


def cell(tier: Tier, **limits: Any) -> Cell:
    """A cell of this tier; the test is skipped where it cannot be had."""
    why = refusal(tier)
    if why is not None:
        pytest.skip(why)
    return Cell(tier, limits=Limits(**limits))


def bare(code: str, as_root: bool = False) -> Result:
    """What the code comes to without a sandbox, as the user that workers have: for code that hurts nobody."""
    done = run([sys.executable, "-c", code], None if as_root or os.geteuid() != 0 else USER)
    return Result(done.stdout, done.stderr, done.returncode, False, False, False, "B")


def run(command: list[str], user: int | None) -> "subprocess.CompletedProcess[str]":
    """Run a command as another user, who can read the interpreter wherever it lies."""
    prefix = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    words = [*prefix, *command]
    return launcher().perform(lambda: subprocess.run(words, capture_output=True, text=True, cwd="/", timeout=300))


@cache
def launcher() -> Launcher:
    view = view_of(("numpy",))
    beside = os.path.dirname(view.interpreter)  # where a virtual environment's link may lead by another name
    return Launcher([beside, *view.readable, *(path for path in sys.path if os.path.isdir(path))])
