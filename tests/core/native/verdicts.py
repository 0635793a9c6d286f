"""Prints the engines that registered pure ids get, verified anew."""

import json
from collections.abc import Iterable

from tests.ids import PURE

from tropism import make
from tropism.core.native.batch_engine import STEPS, choose_batch_engine, verify_batch
from tropism.core.native.choice import choose_engine


def print_verdicts(ids: Iterable[str] = PURE) -> None:
    print(json.dumps({id: str(choose_engine(*make(id))) for id in ids}))


def print_batch_verdicts(ids: Iterable[str] = PURE, steps: int = 10_000) -> None:
    """Why a batch of each id does not run natively; empty if it does, and is equal over these steps."""
    reasons: dict[str, str] = {}
    for id in ids:
        env, params = make(id)
        native, reasons[id] = choose_batch_engine(env, params, "same_step")
        if native is not None and steps > STEPS:
            verdict = verify_batch(native, env, params, "same_step", steps)
            assert verdict.step, f"{id}: {verdict.reason}"
    print(json.dumps(reasons))
