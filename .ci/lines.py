"""Reports the lines of each package, and fails if one exceeds its budget, or a file or function is too long."""

import ast
import sys
from collections import Counter
from pathlib import Path

PACKAGE = Path("src/tropism")
LONGEST_FILE, LONGEST_FUNCTION = 350, 60
BUDGETS = {
    "core": 4300 + 1600,  # the second for core/native
    "check": 1100,
    "isolation": 650,
    "envs": 2200,
    "plume": 3000,
    "gym": 1600,
    "serve": 4700,
    "client": 800,
    "wire": 300,
    "record": 1050,
    "train": 1900,
    "cli": 1700,
    "sandbox": 3400,
    "drawing": 250,
}


def long_functions(path: Path, source: str) -> list[str]:
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = ((node, (node.end_lineno or 0) - node.lineno + 1) for node in functions)
    return [f"{path}: {node.name} has {lines} lines" for node, lines in lengths if lines > LONGEST_FUNCTION]


def main() -> int:
    totals, problems = Counter[str](), list[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        lines = source.count("\n")
        totals[path.relative_to(PACKAGE).parts[0]] += lines
        problems += [f"{path}: {lines} lines"] if lines > LONGEST_FILE else []
        problems += long_functions(path, source)
    for name, budget in BUDGETS.items():
        print(f"{name:10} {totals[name]:6,} of {budget:6,}")
        problems += [f"{name}: {totals[name]} lines, of at most {budget}"] if totals[name] > budget else []
    unknown = {name for name in totals if not name.endswith(".py")} - set(BUDGETS)
    problems += [f"{name}: a package without a budget" for name in sorted(unknown)]
    print("\n".join(problems), file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
