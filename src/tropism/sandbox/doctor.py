"""Attacks the sandbox on this machine, to decide whether untrusted code may be run."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from tropism.errors import SandboxError
from tropism.sandbox import shell
from tropism.sandbox.attack import QUICK, Attack
from tropism.sandbox.attacks import ATTACKS
from tropism.sandbox.grading import Grading
from tropism.sandbox.host_targets import HostTargets
from tropism.sandbox.pool import CANNOT_BLOCK, TIERS, SandboxSpec, Tier, unavailable_reason
from tropism.sandbox.sandbox import ExecutionResult, Sandbox
from tropism.sandbox.shell_attacks import SHELL_ATTACKS
from tropism.sandbox.submission_attacks import FUNCTION, HIDDEN_TEST

MAX_PARALLEL = 4
PAUSE = 0.3  # seconds between the two steps of an attack
SHELL_SPEC = SandboxSpec("A", (), shell=True)
STARTUP_ATTACKS = tuple(attack for attack in ATTACKS if attack.at_startup)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AttackOutcome:
    """The outcome of one attack; `result` is that of its code."""

    attack: Attack
    succeeded: bool
    result: ExecutionResult


@dataclass(frozen=True)
class DoctorReport:
    """The outcomes in the chosen tier; `refusals` are the reasons why earlier tiers are unavailable. `shell`: of the
    sandbox of a shell."""

    tier: Tier | None
    refusals: tuple[str, ...]
    outcomes: tuple[AttackOutcome, ...]
    seconds: float = 0.0  # that the attacks took
    shell: bool = False

    @property
    def ok(self) -> bool:
        return self.tier is not None and bool(self.outcomes) and not any(each.succeeded for each in self.outcomes)

    @property
    def reason(self) -> str | None:
        """Why untrusted code may not be run; None if it may."""
        if self.ok:
            return None
        if self.tier is None:
            return f"no sandbox is available ({'; '.join(self.refusals)})"
        if not self.outcomes:
            return f"the sandbox could not be tested ({self.refusals[-1]})"
        names = ", ".join(each.attack.name for each in self.outcomes if each.succeeded)
        return f"the sandbox of tier {self.tier} failed to block: {names}"

    def require_tier(self) -> Tier:
        """The tier in which untrusted code may be run; raises SandboxError if there is none."""
        if self.tier is None or not self.ok:
            raise SandboxError("sandbox", self.tier, "a sandbox that blocks every attack", self.reason)
        return self.tier

    @property
    def cannot_block(self) -> tuple[str, ...]:
        """For a shell, only what it adds to its tier."""
        if self.shell:
            return shell.CANNOT_BLOCK
        return () if self.tier is None else CANNOT_BLOCK[self.tier]


def examine(
    tiers: Iterable[Tier] = TIERS, attacks: Iterable[Attack] = ATTACKS, progress: Progress | None = None
) -> DoctorReport:
    """Attack the first of these tiers that is available."""
    refusals: list[str] = []
    for tier in tiers:
        reason = unavailable_reason(tier)
        if reason is None:
            return _examine(SandboxSpec(tier), attacks, refusals, progress)
        refusals.append(reason)
    return DoctorReport(None, tuple(refusals), ())


def _examine(
    spec: SandboxSpec, attacks: Iterable[Attack], refusals: list[str], progress: Progress | None
) -> DoctorReport:
    start = time.monotonic()
    try:
        outcomes = run_attacks(spec, attacks, progress)
        return DoctorReport(spec.tier, tuple(refusals), outcomes, time.monotonic() - start, spec.shell)
    except (OSError, SandboxError) as error:  # an attack that could not be run might succeed
        return DoctorReport(spec.tier, (*refusals, f"tier {spec.tier}: {error}"), (), shell=spec.shell)


@cache
def cached_report(*tiers: Tier) -> DoctorReport:
    """The report of the attacks that are run at start-up, computed once per process."""
    return examine(tiers or TIERS, STARTUP_ATTACKS)


def examine_shell(attacks: Iterable[Attack] = SHELL_ATTACKS) -> DoctorReport:
    """Attack the sandbox of a shell."""
    reason = _shell_unavailable_reason()
    return DoctorReport(None, (reason,), (), shell=True) if reason else _examine(SHELL_SPEC, attacks, [], None)


@cache
def cached_shell_report() -> DoctorReport:
    """As `cached_report`, for a shell."""
    return examine_shell(tuple(attack for attack in SHELL_ATTACKS if attack.at_startup))


def _shell_unavailable_reason() -> str | None:
    try:
        with Sandbox(SHELL_SPEC) as sandbox:
            result = sandbox.run("true")
    except SandboxError as error:
        return str(error)
    return None if result.exit_code == 0 else f"bash does not run in the sandbox ({result.stderr.strip()})"


def run_attacks(
    spec: SandboxSpec, attacks: Iterable[Attack] = ATTACKS, progress: Progress | None = None
) -> tuple[AttackOutcome, ...]:
    """Run attacks in sandboxes of this spec; those that run into their time limit run in parallel."""
    chosen = tuple(attacks)
    targets = HostTargets.create()
    count = itertools.count(1)

    def report_progress(outcome: AttackOutcome) -> AttackOutcome:
        if progress is not None:
            progress(next(count), len(chosen))
        return outcome

    try:
        with ThreadPoolExecutor(MAX_PARALLEL) as threads:
            waiting = [attack for attack in chosen if attack.limits is QUICK]
            later = threads.map(lambda attack: report_progress(_run_in_own_sandbox(attack, targets, spec)), waiting)
            others = [attack for attack in chosen if attack.limits is not QUICK]
            outcomes = [report_progress(outcome) for outcome in _run_sequentially(others, targets, spec)] + list(later)
    finally:
        targets.close()
    return tuple(sorted(outcomes, key=lambda outcome: chosen.index(outcome.attack)))


def _run_sequentially(attacks: Iterable[Attack], targets: HostTargets, spec: SandboxSpec) -> Iterator[AttackOutcome]:
    """Attacks that do not change their worker share one."""
    with Sandbox(spec) as sandbox:
        for attack in attacks:
            yield (
                _run_in_own_sandbox(attack, targets, spec)
                if attack.changes_worker
                else attempt(attack, targets, sandbox)
            )
            targets.restore()


def _run_in_own_sandbox(attack: Attack, targets: HostTargets, spec: SandboxSpec) -> AttackOutcome:
    with Sandbox(spec) as sandbox:
        return attempt(attack, targets, sandbox)


def attempt(attack: Attack, targets: HostTargets, sandbox: Sandbox) -> AttackOutcome:
    if attack.submission:
        return _submit(attack, sandbox)
    result = sandbox.start().run(attack.code_for(targets), attack.limits)
    if attack.later and sandbox.is_started:
        time.sleep(PAUSE)
        result = sandbox.run(attack.later, attack.limits)
    return AttackOutcome(attack, attack.has_succeeded(targets, result), result)


def _submit(attack: Attack, sandbox: Sandbox) -> AttackOutcome:
    """Grade the code of an attack like the solution of a task."""
    [passed] = Grading(sandbox.spec, attack.code, (FUNCTION,)).run_tests((HIDDEN_TEST,))
    return AttackOutcome(attack, passed, sandbox.start().run(attack.code, attack.limits))
