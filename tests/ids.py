"""Registered ids as test parameters: a few of each kind in every run, the others marked slow."""

from collections.abc import Iterable
from typing import Any

import pytest

from tropism import registered

QUICK = {"CartPole-v1", "Pendulum-v1", "ConnectFour-v0", "PlumeNav-v0", "Echo-v0", "Coding-v0"}

ALL = [spec.id for spec in registered()]
REPEATABLE = [id for id in ALL if id != "Shell-v0"]  # commands, random ones too, may print the time
PURE = [spec.id for spec in registered() if spec.traced]


PRESETS = {f"SourceTracking{size}-v0" for size in ("", "1D", "53x53", "Windy")}  # of the class of another id


def mark_slow(ids: Iterable[str], quick: Iterable[str] = QUICK) -> list[Any]:
    """The ids as parameters; those that are not `quick` run with `make test-all` and in CI, presets only in full."""
    slow = {id: pytest.mark.full if id in PRESETS else pytest.mark.slow for id in ids}
    return [pytest.param(id, marks=() if id in quick else mark) for id, mark in slow.items()]
