"""Results as tables, for the terminal and for the documentation."""

from collections.abc import Iterable, Sequence
from typing import Any

COLUMNS = ("environments", "peer", "ours", "theirs", "ours / theirs", "spread", "target", "outcome")
FIGURES = ("what", "ours", "spread", "OpenEnv's", "target", "outcome")
RATES = ("environment", "agents", "engine", "steps/s", "steps/s of XLA's loop")


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


def caption(result: dict[str, Any]) -> str:
    """The unit, repeats, machine and package versions of a result."""
    return f"{result['unit']}, medians of {result['repeats']} interleaved repeats. {machine_line(result)}"


def machine_line(result: dict[str, Any]) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(result["versions"].items()))
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    parts = [machine["processor"], cores, machine["system"]]
    if machine["device"].lower() != "cpu":
        parts.append(machine["device"])
    return f"{', '.join(parts)}. {versions}."


def skip_lines(result: dict[str, Any]) -> list[str]:
    return [f"Skipped {label}: {why}" for label, why in result["skipped"].items()]


def rows_as_text(result: dict[str, Any]) -> str:
    rows = [cells(row, result["unit"]) for row in result["rows"]]
    return "\n".join([result["title"], _text(COLUMNS, rows), caption(result), *skip_lines(result)])


def figures_as_text(result: dict[str, Any]) -> str:
    return "\n".join([_text(FIGURES, map(figure, result["figures"])), machine_line(result)])


def figures_as_markdown(result: dict[str, Any]) -> str:
    return "\n\n".join([markdown(FIGURES, map(figure, result["figures"])), machine_line(result)])


def figure(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a figure with a target; some have a value for OpenEnv."""
    unit, (low, high), theirs = row["unit"], row["spread"], row["openenv"]
    sign = "≥" if unit == "steps/s" else "≤"
    return (
        row["what"],
        f"{number(row['ours'])} {unit}",
        f"{number(low)} to {number(high)}" if high > low else "",
        "" if theirs is None else f"{number(theirs)} {unit}",
        f"{sign} {number(row['target'])} {unit}",
        "ok" if row["met"] else "missed",
    )


def rows_as_markdown(result: dict[str, Any]) -> str:
    rows = [cells(row, result["unit"]) for row in result["rows"]]
    return "\n\n".join([markdown(COLUMNS, rows), caption(result), *skip_lines(result)])


def rates_as_markdown(result: dict[str, Any]) -> str:
    """The table of a result without peers."""
    rows = [
        (
            case_label(row),
            f"{row['agents']:,}",
            row["engine"],
            number(row["steps/s"]),
            number(row["xla steps/s"]) if row["xla steps/s"] else "",
        )
        for row in result["rows"]
    ]
    return "\n\n".join([markdown(RATES, rows), f"{result['device']}, jax {result['jax']}."])


def case_label(row: dict[str, Any]) -> str:
    return ", ".join([row["id"], *(f"`{name}={value}`" for name, value in row["arguments"].items())])


def _text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    table = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, ("---",) * len(columns), *rows))
