"""Write the stored results into the tables of the documentation; `--check` only checks that they are up to date."""

import argparse
import json
import re
import sys

from benchmarks.capacity import capacity_as_markdown
from benchmarks.measure import RESULTS
from benchmarks.peers import ROOT
from benchmarks.plume_table import TABLES as PLUME_TABLES
from benchmarks.search_learning import search_learning
from benchmarks.table import (
    cells_as_markdown,
    figures_as_markdown,
    levels_as_markdown,
    rates_as_markdown,
    rows_as_markdown,
)
from benchmarks.tracking_table import TABLES as TRACKING_TABLES

TABLES = {**TRACKING_TABLES, **PLUME_TABLES}
PAGES = [ROOT / "docs" / name for name in ("benchmarks.md", "scale.md", "science.md", "train.md")]

PLACE = re.compile(r"(<!-- result: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(place: re.Match[str]) -> str:
    """Fill one marked place of the page with the table of its result."""
    begin, name, end = place.groups()
    if name == "capacity":
        return f"{begin}\n{capacity_as_markdown()}\n\n{end}"
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return f"{begin}\nNot measured yet.\n\n{end}"
    result = json.loads(path.read_text())
    if name in TABLES:
        table = TABLES[name](result)
    elif name == "search_learning":
        table = search_learning(result)
    elif "cells" in result:
        table = cells_as_markdown(result)
    elif "figures" in result:
        table = figures_as_markdown(result)
    elif "levels" in result:
        table = levels_as_markdown(result)
    else:
        table = rows_as_markdown(result) if "repeats" in result else rates_as_markdown(result)
    return f"{begin}\n{table}\n\n{end}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    only_check = parser.parse_args().check
    for path in PAGES:
        page = path.read_text()
        updated = PLACE.sub(fill, page)
        if not only_check:
            path.write_text(updated)
        elif updated != page:
            sys.exit(f"docs/{path.name} is out of date: run python -m benchmarks.report")


if __name__ == "__main__":
    main()
