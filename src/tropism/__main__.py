"""The command `tropism`, also as `python -m tropism`."""

import os
import signal
import sys
from importlib.util import find_spec

NEEDED = ("typer", "rich", "PIL")  # what the extra `cli` installs


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)  # until `tropism.cli` is imported and handles it
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        print(f'The command line needs {", ".join(missing)}: pip install "tropism[cli]"', file=sys.stderr)
        raise SystemExit(2)
    from tropism.cli import main as run

    run()


def _leave(*_: object) -> None:
    """End at once: an exception in the middle of an import can crash, or be lost."""
    os.write(2, b"Interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
