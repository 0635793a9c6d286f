"""Each sentence of docs/durability.md names a test; the tests exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "durability.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_the_named_tests_exist():
    assert len(NAMED) > 30
    for path, name in NAMED:
        functions = {
            node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert name in functions, f"{path}::{name}"


def test_each_statement_names_a_test():
    statements = re.split(r"\n\* ", PAGE)[1:]
    assert len(statements) > 20
    unproven = [statement for statement in statements if "::test_" not in statement.partition("\n\n")[0]]
    assert not unproven


def test_each_row_of_a_table_names_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "| --- |" not in line]
    unproven = [row for row in rows if "::test_" not in row]
    assert len(rows) > 10
    assert [row.split(" | ")[0] for row in unproven] == ["| failure", "| command"], "the heads of the tables"
