"""Verdicts of the verification on disk, by a digest of the program, the compilers and the CPU."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CACHE_VARIABLE = "TROPISM_CACHE"


class Verdict(NamedTuple):
    """Whether the native step and reset gave XLA's bits; the reason names the first difference."""

    step: bool
    reset: bool
    reason: str = ""


_verdicts: dict[str, Verdict] = {}


def verdict_of(digest: str, compare: Callable[[], Verdict]) -> Verdict:
    """From this process, from the disk, or by a comparison now."""
    if digest not in _verdicts:
        verdict = load_verdict(digest)
        if verdict is None:
            verdict = compare()
            save_verdict(digest, verdict)
        _verdicts[digest] = verdict
    return _verdicts[digest]


def cache_folder() -> Path:
    """`$TROPISM_CACHE`, or `tropism` in the user's cache folder."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tropism"


def load_verdict(digest: str) -> Verdict | None:
    """None if there is none, or if its file cannot be read."""
    try:
        fields = json.loads(_path(digest).read_text())
        verdict = Verdict(**fields)
    except (OSError, RuntimeError, ValueError, TypeError):
        return None
    return verdict if isinstance(verdict.step, bool) and isinstance(verdict.reset, bool) else None


def save_verdict(digest: str, verdict: Verdict) -> None:
    """Does nothing where the folder cannot be written."""
    try:
        path = _path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(verdict._asdict()))
        partial.replace(path)  # at once, so that no other process reads half a file
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return


def _path(digest: str) -> Path:
    return cache_folder() / "native" / f"{digest}.json"
