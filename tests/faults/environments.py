"""Environments whose steps fail in every way, after they have changed their state."""

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from tropism.core.adapters.class_based import AgentEnvironment, adapt
from tropism.serve.session.environment import ServedEnvironment
from tropism.wire.messages import Action, Observation


@dataclass(frozen=True, kw_only=True)
class Order(Action):
    """Adds `amount`, then fails in this way, if any."""

    amount: int = 1
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Total(Observation):
    total: int = 0


RAISED = {
    "raise": RuntimeError("raised"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "stop": StopIteration(),
    "invalid": ValueError("invalid"),
}
RETURNED: dict[str, Any] = {"none": None, "wrong": {"done": False}}
REPLIED: dict[str, Any] = {
    "unencodable": {"metadata": {"made": object()}},
    "nan": {"reward": float("nan")},
    "infinite": {"reward": float("inf")},
    "mistyped": {"reward": "much"},
}
FAILURES = (*RAISED, *RETURNED, *REPLIED)


class Careless(AgentEnvironment):
    """Changes its total before it fails."""

    deterministic: ClassVar[bool] = True

    def __init__(self) -> None:
        self.total = 0

    def reset(self) -> Total:
        return Total()

    def step(self, action: Order) -> Total:
        self.total += action.amount
        if action.failure in RAISED:
            raise RAISED[action.failure]
        if action.failure in RETURNED:
            return RETURNED[action.failure]
        reply: dict[str, Any] = {"reward": float(action.amount), **REPLIED.get(action.failure, {})}
        return Total(total=self.total, done=self.total >= 1000, **reply)


class InlineCareless(Careless):
    """Its steps run on the event loop."""

    blocking = False


class UnrepeatableCareless(Careless):
    replayable = False


class Flaky(InlineCareless):
    """Raises at random, also in a replay."""

    def step(self, action: Order) -> Total:
        if os.urandom(2) < bytes([1]):  # 1 of 256
            self.total += 1_000_000
            raise RuntimeError("at random")
        return super().step(action)


def careless() -> dict[str, ServedEnvironment]:
    kinds = (Careless, InlineCareless, UnrepeatableCareless, Flaky)
    adapted = {kind.__name__: adapt(kind) for kind in kinds}
    return {id: ServedEnvironment(id, env, env.default_params(), "A test's own.") for id, env in adapted.items()}
