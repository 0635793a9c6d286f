"""Settings every test shares."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# Modules, workers, and the programs that tests start compile much the same: once is enough. Set before JAX is loaded.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / "build" / "jax-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Entries are not written at once: who reads half of one says so, and compiles. (pyproject.toml says it for the tests.)
os.environ.setdefault("PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry:UserWarning")
# Servers that tests start keep their sessions apart from those of whoever runs the tests.
os.environ["XDG_STATE_HOME"] = str(Path(__file__).parent.parent / "build" / "state")
# Nearly all that tests compile runs for a moment: to compile in haste takes two thirds of the time.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false --xla_llvm_disable_expensive_passes=true",
)

import jax
import jaxtyping
import pytest
from hypothesis import settings

from tropism.core import registry
from tropism.core.compiled import batch, program

# The first example of a property compiles and the others do not, so a time limit per example means nothing.
# On a build machine the examples are always the same ones, so that a red build can be repeated.
settings.register_profile("tropism", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tropism")


PACKAGES = {"bwrap": "bubblewrap", "chromium": "chromium"}  # Debian packages by the program that tests look for


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was skipped, and which command installs what it needs."""
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
def forget_what_was_compiled() -> Iterator[None]:
    """Thousands of compiled functions slow a long run down, and take gigabytes."""
    yield
    program._programs.clear()  # pyright: ignore[reportPrivateUsage]
    batch._programs.clear()  # pyright: ignore[reportPrivateUsage]
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def untyped() -> Iterator[None]:
    """Without run-time type checks, as users run: the library's own refusals are what is tested."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for one test."""
    registry.registered()
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(registry, "_made", {})
