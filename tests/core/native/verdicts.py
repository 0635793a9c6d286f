"""Prints the engines that registered pure ids get, verified anew."""

import json

from tests.ids import PURE

from tropism import make
from tropism.core.native.batch_engine import choose_batch_engine, verify_batch
from tropism.core.native.choice import choose_engine


def print_verdicts() -> None:
    print(json.dumps({id: str(choose_engine(*make(id))) for id in PURE}))


def print_batch_verdicts() -> None:
    """Why a batch of each id does not run natively; empty if it does, and is equal over 10,000 steps."""
    reasons: dict[str, str] = {}
    for id in PURE:
        env, params = make(id)
        native, reasons[id] = choose_batch_engine(env, params, "same_step")
        if native is not None:
            verdict = verify_batch(native, env, params, "same_step", 10_000)
            assert verdict.step, f"{id}: {verdict.reason}"
    print(json.dumps(reasons))
