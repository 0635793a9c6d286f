"""The history of an episode as JSON: its reset and its steps."""

from typing import Any

from tropism.serve.session.requests import HistoryRequest, convert
from tropism.serve.storage.protocol import Entry


def history(entries: list[Entry], data: dict[str, Any], step_count: int) -> dict[str, Any]:
    """The reply to a request for history; `whole` is true if the entries include every step of the episode."""
    (begin, *steps), start = entries, convert(data, HistoryRequest).start
    whole = sum(step.kind == "step" for step in steps) == step_count
    return {**begin.payload, "from": start, "steps": [_row(step) for step in steps[start:]], "whole": whole} | {
        "step_count": step_count
    }


def _row(entry: Entry) -> dict[str, Any]:
    """A step, an uploaded file, or the new seed of a fork."""
    if entry.kind == "upload":
        return {"file": entry.payload["path"]}
    if entry.kind == "reseed":
        return {"seed": entry.payload["seed"]}
    return {"action": entry.payload, "reward": entry.reward, "done": entry.done}
