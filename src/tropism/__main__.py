"""The command `tropism`, also as `python -m tropism`."""

import sys
from importlib.util import find_spec

NEEDED = ("typer", "rich", "PIL")  # what the extra `cli` installs


def main() -> None:
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        print(f'The command line needs {", ".join(missing)}: pip install "tropism[cli]"', file=sys.stderr)
        raise SystemExit(2)
    from tropism.cli import main as run

    run()


if __name__ == "__main__":
    main()
