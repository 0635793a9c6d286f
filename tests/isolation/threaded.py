"""A host environment of a module that starts a thread when it is imported."""

import threading
import time
from typing import Any

from tests.isolation.fragile import Fragile, Place

from tropism.core.environment import Info


def beat() -> None:
    while True:
        time.sleep(1)


heart = threading.Thread(target=beat, daemon=True)
heart.start()


class Threaded(Fragile):
    """Says whether that thread runs where the episode lives."""

    def info(self, state: Place, params: Any) -> Info:
        return {"beating": heart.is_alive()}
