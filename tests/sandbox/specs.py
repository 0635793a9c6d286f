"""Sandbox specs for tests: every tier available here, and code run without a sandbox for comparison."""

import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tropism.sandbox.launcher import WORKER_UID, Launcher
from tropism.sandbox.limits import Limits
from tropism.sandbox.mounts import mounts_for
from tropism.sandbox.pool import TIERS, SandboxSpec, Tier, unavailable_reason
from tropism.sandbox.sandbox import ExecutionResult

OTHER_UID = 1234  # a user other than root and the workers' one

every_tier = pytest.mark.parametrize("tier", TIERS)


def spec_or_skip(tier: Tier, **limits: Any) -> SandboxSpec:
    """A spec of this tier; skips the test if the tier is unavailable."""
    reason = unavailable_reason(tier)
    if reason is not None:
        pytest.skip(reason)
    return SandboxSpec(tier, limits=Limits(**limits))


def run_unsandboxed(code: str, as_root: bool = False) -> ExecutionResult:
    """Run harmless code without a sandbox, as the workers' user."""
    done = run([sys.executable, "-c", code], None if as_root or os.geteuid() != 0 else WORKER_UID)
    return ExecutionResult(done.stdout, done.stderr, done.returncode, False, False, False, "B")


def run(command: list[str], user: int | None) -> "subprocess.CompletedProcess[str]":
    """Run a command as another user, with access to the interpreter."""
    prefix = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    words = [*prefix, *command]
    return launcher().run(lambda: subprocess.run(words, capture_output=True, text=True, cwd="/", timeout=300))


@cache
def launcher() -> Launcher:
    mounts = mounts_for(("numpy",))
    beside = os.path.dirname(mounts.interpreter)  # a virtual environment may link to another name in this folder
    return Launcher([beside, *mounts.readable, *(path for path in sys.path if os.path.isdir(path))])
