"""The documentation lists exactly what the doctor says that the tiers cannot block."""

import re
from pathlib import Path

from tropism.sandbox import shell
from tropism.sandbox.pool import CANNOT_BLOCK

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"


def listed(title: str) -> list[str]:
    found = re.search(rf"{re.escape(title)}:\n\n((?:[-\s] .*\n)+)", PAGE.read_text())
    assert found is not None, title
    return [" ".join(line.split()) for line in found[1].removeprefix("- ").split("\n- ")]


def test_the_page_lists_what_cannot_be_blocked():
    both = [line for line in CANNOT_BLOCK["A"] if line in CANNOT_BLOCK["B"]]
    assert listed("Both tiers") == both == list(CANNOT_BLOCK["A"])
    assert listed("Tier B also") == [line for line in CANNOT_BLOCK["B"] if line not in both]
    assert listed("`Shell-v0` also") == list(shell.CANNOT_BLOCK)
