"""Names and prose of the package keep to the rules of the style guide."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tropism

SOURCE = Path(tropism.__file__).parent
ROOT = Path(__file__).parent.parent
PROSE = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *SOURCE.rglob("*.py"), *SOURCE.rglob("*.js")]
PERSONIFICATION = re.compile(r"\b(nobody|whoever|somebody)\b|\b(is|are) told\b", re.IGNORECASE)
IRREGULAR = {
    "told",
    "seen",
    "held",
    "kept",
    "begun",
    "shown",
    "drawn",
    "made",
    "left",
    "lost",
    "gone",
    "taken",
    "known",
    "written",
    "sent",
    "found",
    "given",
    "hidden",
    "chosen",
    "grown",
    "brought",
    "heard",
    "meant",
    "met",
    "said",
    "understood",
    "broken",
    "forgotten",
    "spent",
    "felt",
    "rewound",
}
VERBS = {"embed", "exceed", "feed", "need", "reseed", "seed", "speed"}  # and nouns
PARTICIPLES = {"registered"}  # of the public API


def parsed() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text())


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_are_not_personified(path: Path) -> None:
    found = [line for line in path.read_text().splitlines() if PERSONIFICATION.search(line)]
    assert not found


def test_class_names_are_unique() -> None:
    names = Counter(node.name for _, tree in parsed() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_function_is_named_by_a_bare_participle() -> None:
    functions = [
        (str(path), node)
        for path, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node)
    ]
    assert len(functions) > 1000
    assert [(path, node.name) for path, node in functions if is_participle(node.name)] == []


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the name is that of a value, such as `closed`."""
    names = {getattr(each, "id", getattr(each, "attr", "")) for each in node.decorator_list}
    return bool(names & {"property", "cached_property"})


def is_participle(name: str) -> bool:
    word = name.strip("_")
    if "_" in word or word in VERBS or name in PARTICIPLES:
        return False
    return word.endswith("ed") or word in IRREGULAR
