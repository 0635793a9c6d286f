"""The command `tropism`, also as `python -m tropism`."""

import os
import signal
import sys

from tropism.errors import MissingExtraError, require_extra


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_now)  # until `tropism.cli` is imported and handles it
    try:
        require_extra("cli", "The command line", "typer", "rich", "PIL")
    except MissingExtraError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    from tropism.cli import main as run

    run()


def _exit_now(*_: object) -> None:
    """Exit immediately: an exception raised during an import can crash or be lost."""
    os.write(2, b"Interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
