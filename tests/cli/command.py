"""Runs a command of the command line inside the test."""

import sys

import pytest

from tropism import cli


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Its exit code."""
    monkeypatch.setattr(sys, "argv", ["tropism", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)
