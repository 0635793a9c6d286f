"""A host environment in a module that starts a thread on import."""

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
    """Reports whether the thread runs in the process of the episode."""

    def info(self, state: Place, params: Any) -> Info:
        return {"beating": heart.is_alive()}
