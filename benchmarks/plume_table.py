"""The tables of plumes in `docs/science.md`."""

from collections.abc import Callable
from typing import Any

from benchmarks.table import table_as_markdown

TITLES = {
    "puffs": "Puffs, as squares, in a constant wind of 0.5 m/s, beside the released simulator of Singh et al. ({}); "
    "contacts are above 1e-4.",
    "filaments": "Filaments that scatter in three dimensions, 5 puffs per second, in the turbulent wind, beside pompy "
    "0.1.1 ({}); contacts are above 1e3.",
}
NAMES = ("mean", "deviation", "intermittency")


def plume_statistics(result: dict[str, Any]) -> str:
    return "\n\n".join(_statistics_table(case, figures) for case, figures in result.items())


def _statistics_table(case: str, figures: dict[str, Any]) -> str:
    columns = ["point (m)", *(cell for name in NAMES for cell in (f"{name}, ours", "theirs"))]
    rows: list[list[str]] = []
    for index, (x, y) in enumerate(figures["points"]):
        cells = [
            f"{values[name][index]:.3g} ± {values[f'{name}_error'][index]:.1g}"
            for name in NAMES
            for values in (figures["ours"], figures["theirs"])
        ]
        rows.append([f"({x:g}, {y:g})", *cells])
    reference = figures["reference"]
    length = "{runs} × {seconds:g} s, sampled every {interval:g} s".format(**reference)
    return f"{TITLES[case].format(length)}\n\n{table_as_markdown(columns, rows)}"


def assay(result: dict[str, Any]) -> str:
    """The successes of strategies and agents in the assay of Singh et al."""
    policies = list(next(iter(result["found"].values()))["ours"])
    columns = ["plume", *policies, "published agents"]
    rows = [
        [
            plume,
            *(", ".join(map(str, row["ours"][policy])) for policy in policies),
            "{} to {}".format(*row["published"]),
        ]
        for plume, row in result["found"].items()
    ]
    return f"{table_as_markdown(columns, rows)}\n\n{result['caption']}"


TABLES: dict[str, Callable[[Any], str]] = {"plume_statistics": plume_statistics, "assay": assay}
