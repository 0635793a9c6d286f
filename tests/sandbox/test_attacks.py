"""The attack set, for real: blocked in every tier, as root and as a user, and seen where nothing blocks it."""

import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.cells import SOMEBODY, bare, cell, every_tier, run

from tropism.errors import SandboxError
from tropism.sandbox import doctor, landlock, sandbox
from tropism.sandbox.attacks import ATTACKS, Attack
from tropism.sandbox.bait import VARIABLE, Bait
from tropism.sandbox.doctor import Outcome, attacked, examine
from tropism.sandbox.pool import Cell, Pool, Tier, worker_source

ROOT = os.geteuid() == 0
every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)


@cache
def outcomes(tier: Tier) -> dict[Attack, Outcome]:
    return {outcome.attack: outcome for outcome in attacked(cell(tier))}


@every_tier
@every_attack
def test_an_attack_is_blocked(attack: Attack, tier: Tier):
    outcome = outcomes(tier)[attack]
    assert not outcome.succeeded, outcome.result


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack", [attack for attack in ATTACKS if attack.harmless and (ROOT or not attack.by_root)], ids=lambda a: a.name
)
def test_a_harmless_attack_succeeds_without_a_sandbox_and_is_seen(attack: Attack):
    bait = Bait.lay()
    try:
        knows = "\n".join(f"{name} = {value!r}" for name, value in bait.names().items())
        result = bare(f"{knows}\n{attack.code}", attack.by_root)
        assert attack.oracle(bait, result), result
    finally:
        bait.take_up()


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="only root can become somebody else")
@every_tier
def test_every_attack_is_blocked_when_the_server_is_a_user(tier: Tier):
    cell(tier)
    path = os.pathsep.join(path for path in sys.path if path)
    options = ["sandbox", "doctor", "--json", "--tier", tier]
    program = f"import sys; sys.path[:] = {path!r}.split(':'); sys.argv[1:] = {options}"
    done = run([sys.executable, "-c", f"{program}\nfrom tropism.cli import main; main()"], SOMEBODY)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert (report["tier"], report["reason"], len(report["attacks"])) == (tier, None, len(ATTACKS))
    assert done.returncode == 0


@pytest.mark.parametrize(
    "layer", ['_seccomp(libc, bytes.fromhex(config["filter"]))', '_landlock(libc, **config["landlock"])']
)
def test_a_sandbox_that_lacks_a_layer_is_found_out(layer: str, monkeypatch: pytest.MonkeyPatch):
    source = worker_source()
    assert layer in source
    pool = Pool(cell("B"), ahead=0, source=lambda: source.replace(layer, "pass"))
    monkeypatch.setattr(sandbox, "pool_of", lambda cell: pool)
    found = attacked(Cell("B"), [attack for attack in ATTACKS if attack.harmless])
    assert len([outcome for outcome in found if outcome.succeeded]) > 2
    pool.close()


def test_one_attack_that_gets_through_condemns_the_tier(monkeypatch: pytest.MonkeyPatch):
    cell("B")
    through = Attack("say so", "print(DONE)")
    monkeypatch.setattr(doctor, "attacked", lambda cell, progress: attacked(cell, (through, ATTACKS[0]), progress))
    report = examine(["B"])
    assert [outcome.succeeded for outcome in report.outcomes] == [True, False]
    assert (report.ok, report.reason) == (False, "the sandbox of tier B does not hold here: say so")


def test_nothing_is_left_of_the_bait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    attacked(cell("B"), ATTACKS[:3])
    assert (list(tmp_path.iterdir()), VARIABLE in os.environ) == ([], False)


def test_what_cannot_be_examined_is_not_trusted(monkeypatch: pytest.MonkeyPatch):
    cell("B")

    def fails(cell: Cell, progress: Any) -> Any:
        raise OSError("no place for the bait")

    monkeypatch.setattr(doctor, "attacked", fails)
    report = examine(["B"])
    assert not report.ok
    assert report.reason == "the sandbox could not be examined (tier B: no place for the bait)"


def test_a_kernel_without_landlock_is_refused_in_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(landlock, "version", lambda: 3)
    with pytest.raises(SandboxError, match="Landlock version 3, and 6 is needed"):
        Cell("B").config()


def test_a_machine_without_bubblewrap_is_refused_in_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="bubblewrap is not installed"):
        Cell("A").command()
