"""Runs a command in the test process."""

import sys

import pytest

from tropism import cli


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["tropism", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)
