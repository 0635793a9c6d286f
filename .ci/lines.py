"""Reports the lines of each package, and fails if one exceeds its limit, or a file or function is too long."""

import ast
import sys
from collections import Counter
from pathlib import Path

PACKAGE = Path("src/tropism")
LONGEST_FILE, LONGEST_BODY = 350, 60  # lines; a signature is not part of a body
# The limit keeps a package from growing unnoticed. The second number is its planned size: the budget of the
# refactoring and its share of the additions planned for later features; docs/decisions.md explains the difference.
LIMITS = {
    "core": (9825, 5900),
    "check": (1420, 1100),
    "isolation": (650, 650),
    "envs": (4030, 2900),
    "plume": (5210, 5000),
    "gym": (2000, 1600),
    "serve": (8465, 7000),
    "client": (915, 830),
    "wire": (485, 300),
    "record": (1140, 1050),
    "train": (2985, 1900),
    "cli": (2515, 1700),
    "sandbox": (3890, 3400),
    "drawing": (250, 250),
    "scale": (810, 800),
}


def long_functions(path: Path, source: str) -> list[str]:
    nodes = ast.walk(ast.parse(source))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = ((node, (node.end_lineno or 0) - node.body[0].lineno + 1) for node in functions)
    return [f"{path}: {node.name} has {lines} lines" for node, lines in lengths if lines > LONGEST_BODY]


def main() -> int:
    totals, problems = Counter[str](), list[str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        lines = source.count("\n")
        totals[path.relative_to(PACKAGE).parts[0]] += lines
        problems += [f"{path}: {lines} lines"] if lines > LONGEST_FILE else []
        problems += long_functions(path, source)
    print("package     lines  limit  planned")
    for name, (limit, planned) in LIMITS.items():
        print(f"{name:10} {totals[name]:6,} {limit:6,} {planned:8,}")
        problems += [f"{name}: {totals[name]} lines, of at most {limit}"] if totals[name] > limit else []
    unknown = {name for name in totals if not name.endswith(".py")} - set(LIMITS)
    problems += [f"{name}: a package without a limit" for name in sorted(unknown)]
    print("\n".join(problems), file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
