"""A result as a table, for the terminal and for the documentation."""

from collections.abc import Iterable, Sequence
from typing import Any

COLUMNS = ("environments", "peer", "ours", "theirs", "ours / theirs", "spread", "target", "outcome")
RATES = ("environment", "agents", "steps/s")


def number(value: float) -> str:
    """Three figures, with a letter for the thousands: 12.4 M."""
    for scale, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.3g}"


def cells(row: dict[str, Any], unit: str) -> tuple[str, ...]:
    target = row["target"]
    sign = "≥" if unit == "steps/s" else "≤"
    return (
        f"{row['num_envs']:,}",
        row["rival"],
        number(row["ours"]),
        number(row["theirs"]),
        f"{row['ratio']:.2f}",
        f"{min(row['ratios']):.2f} to {max(row['ratios']):.2f}",
        "" if target is None else f"{sign} {target:g}",
        "" if target is None else ("ok" if row["met"] else "missed"),
    )


def about(result: dict[str, Any]) -> str:
    """Where and with what it was measured."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(result["versions"].items()))
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    place = f"{machine['processor']}, {cores}, {machine['system']}"
    if machine["device"].lower() != "cpu":
        place += f", {machine['device']}"
    return f"{result['unit']}, medians of {result['repeats']} interleaved repeats. {place}. {versions}."


def skipped(result: dict[str, Any]) -> list[str]:
    return [f"Skipped {label}: {why}" for label, why in result["skipped"].items()]


def rows_as_text(result: dict[str, Any]) -> str:
    rows = [COLUMNS, *(cells(row, result["unit"]) for row in result["rows"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([result["title"], *lines, about(result), *skipped(result)])


def rows_as_markdown(result: dict[str, Any]) -> str:
    rows = [cells(row, result["unit"]) for row in result["rows"]]
    return "\n\n".join([_markdown(COLUMNS, rows), about(result), *skipped(result)])


def rates_as_markdown(result: dict[str, Any]) -> str:
    """Of a result without peers."""
    rows = [(spelled(row), f"{row['agents']:,}", number(row["steps/s"])) for row in result["rows"]]
    return "\n\n".join([_markdown(RATES, rows), f"{result['device']}, jax {result['jax']}."])


def spelled(row: dict[str, Any]) -> str:
    return ", ".join([row["id"], *(f"`{name}={value}`" for name, value in row["arguments"].items())])


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, ("---",) * len(columns), *rows))
