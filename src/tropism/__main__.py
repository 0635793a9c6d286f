"""The command `tropism`, also as `python -m tropism`."""

import sys

from tropism.errors import MissingExtraError, require_extra


def main() -> None:
    try:
        require_extra("cli", "The command line", "typer", "rich", "PIL")
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    from tropism.cli import main as run

    run()


if __name__ == "__main__":
    main()
