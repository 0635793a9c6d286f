"""Attacks its own sandbox: what got through, and so whether untrusted code may be run here at all."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from tropism.errors import SandboxError
from tropism.sandbox.attacks import ATTACKS, QUICK, Attack
from tropism.sandbox.bait import Bait
from tropism.sandbox.pool import CANNOT_BLOCK, TIERS, Cell, Tier, refusal
from tropism.sandbox.sandbox import Result, Sandbox

SIDE_BY_SIDE = 4
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one attack; `result` is what its code printed."""

    attack: Attack
    succeeded: bool
    result: Result


@dataclass(frozen=True)
class Report:
    """What became of all of them, in the tier that was chosen; `refusals` are those of the tiers before it."""

    tier: Tier | None
    refusals: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        return self.tier is not None and bool(self.outcomes) and not any(each.succeeded for each in self.outcomes)

    @property
    def reason(self) -> str | None:
        """Why no untrusted code may be run here; None where it may."""
        if self.ok:
            return None
        if self.tier is None:
            return f"no sandbox can be had here ({'; '.join(self.refusals)})"
        if not self.outcomes:
            return f"the sandbox could not be examined ({self.refusals[-1]})"
        names = ", ".join(each.attack.name for each in self.outcomes if each.succeeded)
        return f"the sandbox of tier {self.tier} does not hold here: {names}"

    @property
    def cannot_block(self) -> tuple[str, ...]:
        return () if self.tier is None else CANNOT_BLOCK[self.tier]


def examine(tiers: Iterable[Tier] = TIERS, progress: Progress | None = None) -> Report:
    """Attack the first of these tiers that can be had here."""
    refusals: list[str] = []
    for tier in tiers:
        why = refusal(tier)
        if why is None:
            return _examine(tier, refusals, progress)
        refusals.append(why)
    return Report(None, tuple(refusals), ())


def _examine(tier: Tier, refusals: list[str], progress: Progress | None) -> Report:
    try:
        return Report(tier, tuple(refusals), attacked(Cell(tier), progress=progress))
    except (OSError, SandboxError) as error:  # what could not be tried may well succeed
        return Report(tier, (*refusals, f"tier {tier}: {error}"), ())


@cache
def examined(*tiers: Tier) -> Report:
    """As `examine`, once in the life of this process."""
    return examine(tiers or TIERS)


def attacked(cell: Cell, attacks: Iterable[Attack] = ATTACKS, progress: Progress | None = None) -> tuple[Outcome, ...]:
    """Run attacks in a sandbox like this one; those that only wait for their limit wait side by side."""
    chosen = tuple(attacks)
    bait = Bait.lay()
    count = itertools.count(1)

    def told(outcome: Outcome) -> Outcome:
        if progress is not None:
            progress(next(count), len(chosen))
        return outcome

    try:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
            waiting = [attack for attack in chosen if attack.limits is QUICK]
            later = threads.map(lambda attack: told(_alone(attack, bait, cell)), waiting)
            others = [attack for attack in chosen if attack.limits is not QUICK]
            outcomes = [told(outcome) for outcome in _one_by_one(others, bait, cell)] + list(later)
    finally:
        bait.take_up()
    return tuple(sorted(outcomes, key=lambda outcome: chosen.index(outcome.attack)))


def _one_by_one(attacks: Iterable[Attack], bait: Bait, cell: Cell) -> Iterator[Outcome]:
    """Those that leave nothing behind share a worker."""
    with Sandbox(cell) as sandbox:
        for attack in attacks:
            yield _alone(attack, bait, cell) if attack.lasting else attempt(attack, bait, sandbox)
            bait.renew()


def _alone(attack: Attack, bait: Bait, cell: Cell) -> Outcome:
    with Sandbox(cell) as sandbox:
        return attempt(attack, bait, sandbox)


def attempt(attack: Attack, bait: Bait, sandbox: Sandbox) -> Outcome:
    knows = "\n".join(f"{name} = {value!r}" for name, value in bait.names().items())
    result = sandbox.start().run(f"{knows}\n{attack.code}", attack.limits)
    return Outcome(attack, attack.oracle(bait, result), result)


def check(*tiers: Tier) -> Tier:
    """The tier in which untrusted code may be run here, or a refusal."""
    report = examined(*tiers)
    if report.tier is None or not report.ok:
        raise SandboxError("sandbox", report.tier, "a sandbox that holds", report.reason)
    return report.tier
