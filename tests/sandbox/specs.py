"""Sandbox specs for tests: every tier available here, and code run without a sandbox for comparison."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest

from tropism.sandbox import launcher, pool, sandbox
from tropism.sandbox.launcher import Launcher
from tropism.sandbox.limits import Limits
from tropism.sandbox.monitor import WorkerMonitor
from tropism.sandbox.mounts import mounts_for
from tropism.sandbox.pool import TIERS, SandboxSpec, Tier, unavailable_reason, worker_source
from tropism.sandbox.sandbox import Sandbox

OTHER_UID = 1234  # a user other than root and the workers' one

every_tier = pytest.mark.parametrize("tier", TIERS)


def spec_or_skip(tier: Tier, **limits: Any) -> SandboxSpec:
    """A spec of this tier; skips the test if the tier is unavailable."""
    reason = unavailable_reason(tier)
    if reason is not None:
        pytest.skip(reason)
    return SandboxSpec(tier, limits=Limits(**limits))


@contextlib.contextmanager
def unconfined_sandbox(as_root: bool, monkeypatch: pytest.MonkeyPatch) -> Generator[Sandbox]:
    """A sandbox whose worker does not confine itself and that enforces no limit but time, for harmless code."""
    confine = "        confine(config)\n"
    assert confine in worker_source()
    monkeypatch.setattr(pool, "ENVIRONMENT", dict(os.environ))
    monkeypatch.setattr(WorkerMonitor, "exceeded_limit", lambda *arguments: None)
    if as_root:
        monkeypatch.setattr(launcher, "unprivileged_prefix", lambda ends_with_thread: [])
    unconfined = pool.Pool(SandboxSpec("B"), spares=0, source=lambda: worker_source().replace(confine, ""))
    unconfined._uses_groups = False  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(sandbox, "shared_pool", lambda spec: unconfined)
    with Sandbox(SandboxSpec("B")) as started:
        yield started
    unconfined.close()


def run(command: list[str], user: int | None) -> "subprocess.CompletedProcess[str]":
    """Run a command as another user, with access to the interpreter."""
    prefix = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    words = [*prefix, *command]
    return starter().run(lambda: subprocess.run(words, capture_output=True, text=True, cwd="/", timeout=300))


@cache
def starter() -> Launcher:
    mounts = mounts_for(("numpy",))
    beside = os.path.dirname(mounts.interpreter)  # a virtual environment may link to another name in this folder
    return Launcher([beside, *mounts.readable, *(path for path in sys.path if os.path.isdir(path))])
