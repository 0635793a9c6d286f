"""Results as tables, for the terminal and for the documentation."""

from collections.abc import Iterable, Sequence
from typing import Any

COLUMNS = ("environments", "peer", "ours", "theirs", "ours / theirs", "spread", "target", "outcome")
FIGURES = ("what", "ours", "spread", "OpenEnv's", "target", "outcome")
LEVELS = ("journal", "sessions", "steps/s", "p50, ms", "p99, ms", "CPU of workers, µs/step", "CPU of Postgres, µs/step")
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
    if "load" in result:
        parts.append(f"load {result['load']:g} of other processes")
    return f"{', '.join(parts)}. {versions}."


def skip_lines(result: dict[str, Any]) -> list[str]:
    return [f"Skipped {label}: {why}" for label, why in result["skipped"].items()]


def rows_as_text(result: dict[str, Any]) -> str:
    rows = [cells(row, result["unit"]) for row in result["rows"]]
    return "\n".join([result["title"], _text(COLUMNS, rows), caption(result), *skip_lines(result)])


def figures_as_text(result: dict[str, Any]) -> str:
    return "\n".join([_text(FIGURES, map(figure, result["figures"])), machine_line(result)])


def figures_as_markdown(result: dict[str, Any]) -> str:
    return "\n\n".join([table_as_markdown(FIGURES, map(figure, result["figures"])), machine_line(result)])


def figure(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a figure with a target; some have a value for OpenEnv."""
    unit, (low, high), theirs = row["unit"], row["spread"], row["openenv"]
    sign = "≥" if unit == "steps/s" else "≤"
    return (
        row["what"],
        f"{number(row['ours'])} {unit}",
        f"{number(low)} to {number(high)}" if high > low else "",
        "" if theirs is None else f"{number(theirs)} {unit}",
        "" if row["target"] is None else f"{sign} {number(row['target'])} {unit}",
        "" if row["target"] is None else ("ok" if row["met"] else "missed"),
    )


def rows_as_markdown(result: dict[str, Any]) -> str:
    rows = [cells(row, result["unit"]) for row in result["rows"]]
    return "\n\n".join([table_as_markdown(COLUMNS, rows), caption(result), *skip_lines(result)])


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
    return "\n\n".join([table_as_markdown(RATES, rows), f"{result['device']}, jax {result['jax']}."])


def levels_as_text(result: dict[str, Any]) -> str:
    return "\n".join([_text(LEVELS, map(level, result["levels"])), *level_notes(result)])


def levels_as_markdown(result: dict[str, Any]) -> str:
    return "\n\n".join([table_as_markdown(LEVELS, map(level, result["levels"])), *level_notes(result)])


def level(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a durability level."""
    figures = (row[name] for name in ("rate", "p50_ms", "p99_ms", "worker_us"))
    database = number(row["database_us"]) if row["database_us"] else ""
    return (row["level"], f"{row['sessions']:,}", *map(number, figures), database)


def level_notes(result: dict[str, Any]) -> list[str]:
    """The time to resume a long episode, and the machine with its load."""
    times = ", ".join(f"{seconds:.2f} s ({label})" for label, seconds in result["resume"].items())
    resume = f"The first request after a kill resumes an episode of {result['episode_steps']:,} steps in {times}."
    return [resume, f"{machine_line(result)} Load average {result['load']:.1f}, with other programs."]


def case_label(row: dict[str, Any]) -> str:
    return ", ".join([row["id"], *(f"`{name}={value}`" for name, value in row["arguments"].items())])


def _text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    table = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def table_as_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, ("---",) * len(columns), *rows))
