"""An episode as it is told: what it began with, and each step."""

from typing import Any

from tropism.serve.storage.protocol import Entry


def history(entries: list[Entry], start: int, step_count: int) -> dict[str, Any]:
    """From this row on; `whole` where every step of the episode is among the entries."""
    begin, *steps = entries
    whole = sum(step.kind == "step" for step in steps) == step_count
    return {**begin.payload, "from": start, "steps": [_row(step) for step in steps[start:]], "whole": whole}


def _row(entry: Entry) -> dict[str, Any]:
    """A step; a fork with a seed of its own says from where on it was drawn from."""
    if entry.kind == "reseed":
        return {"seed": entry.payload["seed"]}
    return {"action": entry.payload, "reward": entry.reward, "done": entry.done}
