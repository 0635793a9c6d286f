"""Shrinks a failing example."""

from collections.abc import Callable, Iterator
from typing import Any

from tropism.check.finding import Finding, attempt

MAX_TRIALS = 60  # attempts to remove an action


def shrink(
    fails: Callable[[list[Any]], Finding | None], finding: Finding, actions: list[Any]
) -> tuple[Finding, list[Any]]:
    """The shortest prefix of `actions` that fails in the same place, without the actions that do not matter."""
    trials = 0
    for fewer in _prefixes(actions):
        found = attempt(lambda fewer=fewer: fails(fewer), finding.place)
        if found is not None and found.place == finding.place:
            finding, actions = found, fewer
            break
    i = len(actions) - 1
    while i >= 0 and trials < MAX_TRIALS:
        fewer = actions[:i] + actions[i + 1 :]
        found = attempt(lambda fewer=fewer: fails(fewer), finding.place)
        trials += 1
        i -= 1
        if found is not None and found.place == finding.place:
            finding, actions, i = found, fewer, len(fewer) - 1  # an action that was needed before may not be any more
    return finding, actions


def _prefixes(actions: list[Any]) -> Iterator[list[Any]]:
    length = 0
    while length < len(actions):
        yield actions[:length]
        length = 2 * length or 1
