"""Real attacks: blocked in every tier, as root and as a user, and detected if nothing blocks them."""

import json
import os
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.specs import OTHER_UID, every_tier, run, spec_or_skip, unconfined_sandbox

from tropism.errors import SandboxError
from tropism.sandbox import doctor, landlock, launcher, process, sandbox
from tropism.sandbox.attack import Attack, answers_for_later_step
from tropism.sandbox.attacks import ATTACKS
from tropism.sandbox.doctor import AttackOutcome, attempt, examine, run_attacks
from tropism.sandbox.host_targets import SECRET_VARIABLE, HostTargets
from tropism.sandbox.pool import Pool, SandboxSpec, Tier, worker_source
from tropism.sandbox.submission_attacks import HIDDEN_TEST

ROOT = os.geteuid() == 0
ATTEMPTS = 5  # an attack may depend on a race
every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


@cache
def outcomes(tier: Tier) -> dict[Attack, AttackOutcome]:
    return {outcome.attack: outcome for outcome in run_attacks(spec_or_skip(tier))}


@every_tier
@every_attack
def test_an_attack_is_blocked(attack: Attack, tier: Tier):
    outcome = outcomes(tier)[attack]
    assert not outcome.succeeded, outcome.result


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [attack for attack in ATTACKS if attack.harmless and (ROOT or not attack.needs_root)],
    ids=lambda a: a.name,
)
def test_a_harmless_attack_succeeds_without_a_sandbox_and_is_detected(attack: Attack, monkeypatch: pytest.MonkeyPatch):
    targets = HostTargets.create()
    try:
        with unconfined_sandbox(attack.needs_root, monkeypatch) as unconfined:
            plain = run_with_test(attack) if attack.submission else attack
            outcomes = (attempt(plain, targets, unconfined) for _ in range(ATTEMPTS))
            assert any(outcome.succeeded for outcome in outcomes)
    finally:
        targets.close()


def run_with_test(attack: Attack) -> Attack:
    """Grading without isolation: the submission and its test are one program."""
    return replace(attack, code=f"{attack.code}\n{HIDDEN_TEST}\nprint(DONE)", submission=False)


def test_an_answer_for_a_later_step_is_detected_if_tokens_repeat(monkeypatch: pytest.MonkeyPatch):
    [attack] = [attack for attack in ATTACKS if attack.oracle is answers_for_later_step]
    targets = HostTargets.create()
    monkeypatch.setattr(process.os, "urandom", bytes)
    try:
        with sandbox.Sandbox(spec_or_skip("B")) as started:
            assert attempt(attack, targets, started).succeeded
    finally:
        targets.close()


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="only root can become another user")
@every_tier
def test_every_attack_is_blocked_when_the_server_is_a_user(tier: Tier):
    spec_or_skip(tier)
    path = os.pathsep.join(path for path in sys.path if path)
    options = ["sandbox", "doctor", "--json", "--tier", tier]
    program = f"import sys; sys.path[:] = {path!r}.split(':'); sys.argv[1:] = {options}"
    done = run([sys.executable, "-c", f"{program}\nfrom tropism.cli import main; main()"], OTHER_UID)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert (report["tier"], report["reason"], len(report["attacks"])) == (tier, None, len(ATTACKS))
    assert done.returncode == 0


@pytest.mark.parametrize(
    "layer", ['_seccomp(libc, bytes.fromhex(config["filter"]))', '_landlock(libc, **config["landlock"])']
)
def test_a_sandbox_without_one_layer_is_detected(layer: str, monkeypatch: pytest.MonkeyPatch):
    source = worker_source()
    assert layer in source
    pool = Pool(spec_or_skip("B"), spares=0, source=lambda: source.replace(layer, "pass"))
    monkeypatch.setattr(sandbox, "shared_pool", lambda spec: pool)
    outcomes = run_attacks(SandboxSpec("B"), [attack for attack in ATTACKS if attack.harmless])
    assert len([outcome for outcome in outcomes if outcome.succeeded]) > 2
    pool.close()


def test_one_attack_that_succeeds_rejects_the_tier(monkeypatch: pytest.MonkeyPatch):
    spec_or_skip("B")
    successful = Attack("print the secret", "print(DONE)")
    monkeypatch.setattr(
        doctor, "run_attacks", lambda spec, attacks, progress: run_attacks(spec, (successful, ATTACKS[0]), progress)
    )
    report = examine(["B"])
    assert [outcome.succeeded for outcome in report.outcomes] == [True, False]
    assert (report.ok, report.reason) == (False, "the sandbox of tier B failed to block: print the secret")


def test_targets_are_removed_after_the_attacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_attacks(spec_or_skip("B"), ATTACKS[:3])
    assert (list(tmp_path.iterdir()), SECRET_VARIABLE in os.environ) == ([], False)


def test_a_sandbox_that_cannot_be_tested_is_not_trusted(monkeypatch: pytest.MonkeyPatch):
    spec_or_skip("B")

    def fails(spec: SandboxSpec, attacks: Any, progress: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(doctor, "run_attacks", fails)
    report = examine(["B"])
    assert not report.ok
    assert report.reason == "the sandbox could not be tested (tier B: no space left)"


def test_an_old_landlock_is_rejected_with_its_version(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(landlock, "version", lambda: 3)
    with pytest.raises(SandboxError, match="Landlock version 3; version 6 is required"):
        SandboxSpec("B").config()


def test_a_machine_without_bubblewrap_is_rejected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(launcher, "_programs", {})
    with pytest.raises(SandboxError, match="bubblewrap is not installed"):
        SandboxSpec("A").command()
