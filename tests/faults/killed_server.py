"""A server that starts again whenever it is killed: `python killed_server.py PORT JOURNAL DURABILITY`.

The modules are imported once; each server is a fork. Each prints its process id and its address.
"""

import os
import sys
from pathlib import Path

from tests.faults.environments import careless

from tropism.serve.app import App
from tropism.serve.server import load_environments, log_to_stderr, run
from tropism.serve.settings import Settings
from tropism.serve.storage.sqlite import SqliteJournal

REGISTERED = ("CartPole-v1", "Echo-v0", "Chat-v0")


def serve(port: int, path: Path, durability: str) -> None:
    log_to_stderr("critical")  # steps that raise are part of the test
    journal = SqliteJournal(path, "power" if durability == "power" else "process")
    app = App(load_environments(REGISTERED) | careless(), Settings(port=port), journal)
    run(app, lambda url: print(f"{os.getpid()} at {url}", flush=True))


def main() -> None:
    port, path, durability = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    while True:
        child = os.fork()
        if child == 0:
            serve(port, path, durability)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
