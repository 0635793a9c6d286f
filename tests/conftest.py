"""Settings and fixtures shared by all tests."""

import gc
import os
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

# Test modules, workers and subprocesses share compiled programs. Set before JAX is imported.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / "build" / "jax-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Entries are not written atomically: a process that reads a partial one warns and compiles. (pyproject.toml
# ignores the warning in the tests themselves.)
os.environ.setdefault("PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry:UserWarning")
os.environ.setdefault("TROPISM_CACHE", str(Path(__file__).parent.parent / "build" / "cache"))
# Servers that tests start must not use the sessions of the user who runs the tests.
os.environ["XDG_STATE_HOME"] = str(Path(__file__).parent.parent / "build" / "state")
# Most compiled code in tests runs only briefly: less optimisation takes two thirds of the time.
# An XLA later than that of jaxlib 0.10 does not have the third flag, and ends the process.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
    + (" --xla_cpu_use_fusion_emitters=false" if metadata.version("jaxlib").startswith("0.10.") else ""),
)

import jax
import jaxtyping
import pytest
from hypothesis import settings

from tropism.core import registry
from tropism.core.compiled import batch, program

# Only the first example of a property compiles, so a deadline per example is meaningless.
# In CI the examples are deterministic, so that a failure can be reproduced.
settings.register_profile("tropism", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tropism")


PACKAGES = {"bwrap": "bubblewrap", "chromium": "chromium"}  # Debian packages by the program that tests look for


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report in one line what was skipped, and which command installs the missing programs."""
    skipped = terminalreporter.stats.get("skipped", [])
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not skipped:
        return
    if missing:
        cause = f"{' and '.join(missing)} not installed; to run them: sudo apt-get install {' '.join(missing)}"
    else:
        cause = "; ".join(sorted({str(report.longrepr[2]) for report in skipped}))
    terminalreporter.write_line(f"{len(skipped)} tests skipped: {cause}", yellow=True)


@pytest.fixture(autouse=True, scope="module")
def clear_compilation_caches() -> Iterator[None]:
    """Thousands of compiled functions slow down a long run and take gigabytes."""
    yield
    program._programs.clear()  # pyright: ignore[reportPrivateUsage]
    batch._programs.clear()  # pyright: ignore[reportPrivateUsage]
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def untyped() -> Iterator[None]:
    """Disable run-time type checks, as for users, to test the library's own validation."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def separate_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the registry for one test."""
    registry.registered()
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(registry, "_sources", {})
