"""Prints the engine that each registered pure id gets, verified anew."""

import json

from tests.ids import PURE

from tropism import make
from tropism.core.native.choice import choose_engine


def print_verdicts() -> None:
    print(json.dumps({id: str(choose_engine(*make(id))) for id in PURE}))
