"""The tables of source tracking in `docs/science.md`."""

from collections.abc import Callable
from typing import Any

from benchmarks.table import number, table_as_markdown

NAMES = {
    "SourceTracking1D-v0": "1-D, 33",
    "SourceTracking19x19-v0": "19 × 19",
    "SourceTracking53x53-v0": "53 × 53",
    "SourceTrackingWindy-v0": "windy, R̄ = 2.5",
}


def tracking(result: dict[str, Any]) -> str:
    """Mean search times beside the reference."""
    rows = [
        (
            NAMES[row["id"]],
            row["strategy"],
            f"{row['runs']:,}",
            f"{row['mean']:.2f} ± {row['standard_error']:.2f}",
            f"{row['reference']:g} ± {row['reference_error']:g}",
            f"{row['z']:+.2f}",
        )
        for row in result["rows"]
    ]
    minutes = sum(row["cpu_seconds"] for row in result["rows"]) / 60
    columns = ("case", "strategy", "searches", "ours", "reference", "z")
    caption = f"All rows together: χ² with p = {result['chi_square_p']:.2f}. CPU time: {minutes:.0f} minutes."
    return f"{table_as_markdown(columns, rows)}\n\n{caption}"


def tracking_speed(rows: list[dict[str, Any]]) -> str:
    """Steps per second of infotaxis beside otto."""
    columns = ("case", "Tropism", "otto", "ratio", "otto, one environment", "ratio")
    cells: list[tuple[str, ...]] = []
    for row in rows:
        ours, theirs, reused = row["tropism"], row["otto"], row["otto, one environment"]
        rates = (number(ours), number(theirs), f"{ours / theirs:.0f}", number(reused), f"{ours / reused:.0f}")
        cells.append((NAMES[row["id"]], *rates))
    return table_as_markdown(columns, cells)


def tracking_learning(result: dict[str, Any]) -> str:
    """Mean search times of trained networks beside the strategy that taught them."""
    rows = [
        (
            row["policy"],
            f"{row['mean']:.2f} ± {row['standard_error']:.2f}",
            f"{row['difference']:+.3f} ± {row['difference_error']:.3f}" if row["difference_error"] else "",
            f"{row['not_found']:.1g}",
        )
        for row in result["rows"]
    ]
    columns = ("policy", "mean time", "difference", "P(not found)")
    return f"{table_as_markdown(columns, rows)}\n\n{result['searches']:,} searches with the same seeds."


TABLES: dict[str, Callable[[Any], str]] = {
    "tracking": tracking,
    "tracking_speed": tracking_speed,
    "tracking_learning": tracking_learning,
}
