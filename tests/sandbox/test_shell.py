"""Commands in a sandbox: attacks, limits of all processes together, and nothing left behind."""

import os
import subprocess
from collections.abc import Generator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tropism.errors import SandboxError, ValidationError
from tropism.sandbox import cgroup
from tropism.sandbox.attack import Attack
from tropism.sandbox.cgroup import PREFIX, ControlGroup
from tropism.sandbox.doctor import SHELL_SPEC, AttackOutcome, attempt, cached_shell_report, examine_shell, run_attacks
from tropism.sandbox.host_targets import SECRET_VARIABLE, HostTargets
from tropism.sandbox.launcher import unprivileged_prefix
from tropism.sandbox.limits import MEBIBYTE, Limits
from tropism.sandbox.pool import SandboxSpec
from tropism.sandbox.sandbox import ExecutionResult, Sandbox
from tropism.sandbox.shell_attacks import SHELL_ATTACKS

ROOT = os.geteuid() == 0
REASON = cached_shell_report().reason
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
SMALL = replace(SHELL_SPEC, limits=Limits(memory=128 * MEBIBYTE, files=4 * MEBIBYTE, threads=16, wall=60, cpu=60))


@pytest.fixture
def shell() -> Generator[Sandbox]:
    with Sandbox(SMALL) as started:
        yield started


@cache
def outcomes() -> dict[Attack, AttackOutcome]:
    return {outcome.attack: outcome for outcome in run_attacks(SHELL_SPEC, SHELL_ATTACKS)}


@pytest.mark.slow
@pytest.mark.parametrize("attack", SHELL_ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_by_a_command_is_blocked(attack: Attack):
    assert not outcomes()[attack].succeeded, outcomes()[attack].result


class UnconfinedShell:
    """Runs commands without a sandbox, as the workers' user or as root."""

    def __init__(self, as_root: bool):
        self._prefix = [] if as_root else unprivileged_prefix(False)

    def start(self) -> "UnconfinedShell":
        return self

    def run(self, command: str, limits: Limits) -> ExecutionResult:
        words = [*self._prefix, "bash", "-c", command]
        environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/bin:/bin"}
        descriptors = [int(word.rpartition("/")[2]) for word in self._prefix[:1]]
        done = subprocess.run(
            words, capture_output=True, text=True, cwd="/", timeout=60, env=environment, pass_fds=descriptors
        )
        return ExecutionResult(done.stdout, done.stderr, done.returncode, False, False, False, "A")


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [attack for attack in SHELL_ATTACKS if attack.harmless and (ROOT or not attack.needs_root)],
    ids=lambda attack: attack.name,
)
def test_an_attack_by_a_command_succeeds_without_a_sandbox_and_is_detected(attack: Attack):
    targets = HostTargets.create()
    try:
        outcome = attempt(attack, targets, UnconfinedShell(attack.needs_root))  # pyright: ignore[reportArgumentType]
        assert outcome.succeeded, outcome.result
    finally:
        targets.close()
        assert SECRET_VARIABLE not in os.environ


def test_the_tools_of_an_agent_work(shell: Sandbox):
    steps = {
        "echo 'print(6 * 7)' > a.py && python a.py": "42\n",
        "git init -q . && git add a.py && git commit -qm first && git log --format=%s | cat": "first\n",
        "printf '3\\n1\\n2\\n' | sort | head -2 | paste -sd+": "1+2\n",
        "diff <(echo a) <(echo a) && timeout 5 echo same": "same\n",
        "mkdir -p d/e && cp a.py d/e && find . -name '*.py' | sort | xargs wc -l | tail -1": " 2 total\n",
        "sleep 0.01 & wait $!; echo $?": "0\n",
        'python -c \'import subprocess; print(subprocess.check_output(["ls", "d"], text=True))\'': "e\n\n",
        "exit 3": "",
    }
    for command, expected in steps.items():
        result = shell.run(command)
        assert (result.stdout, result.stderr, result.exit_code) == (expected, "", 3 if command == "exit 3" else 0)


@pytest.mark.slow
def test_the_memory_of_all_processes_together_is_limited(shell: Sandbox):
    fill = "x = bytearray(60 << 20); x[::4096] = bytes(len(x) // 4096)"
    hold = f"python -c \"{fill}; import time; time.sleep(1); print('held')\""
    assert shell.run(hold).stdout == "held\n"
    result = shell.run(f"{hold} & {hold} & {hold} & wait")
    assert result.stdout.count("held") < 3
    assert shell.run("echo alive").stdout == "alive\n"


def test_the_number_of_processes_is_limited(shell: Sandbox):
    result = shell.run("for _ in $(seq 40); do sleep 5 & done; ls -d /proc/[0-9]* | wc -l")
    assert "Resource temporarily unavailable" in result.stderr
    assert shell.run("echo alive").stdout == "alive\n"


def test_no_process_outlives_its_command_and_no_group_its_shell(shell: Sandbox):
    worker = shell._worker  # pyright: ignore[reportPrivateUsage]
    assert worker is not None
    [group] = worker._groups  # pyright: ignore[reportPrivateUsage]
    shell.run("setsid sleep 100 & (sleep 100 &) & trap '' TERM; nohup sleep 100 >/dev/null 2>&1 & sleep 0.1")
    assert group.processes() == {worker.pid}
    folders = group._folders  # pyright: ignore[reportPrivateUsage]
    assert all(folder.exists() for folder in folders)
    shell.close()
    assert not any(folder.exists() for folder in folders)


def test_files_survive_a_command_that_is_stopped(shell: Sandbox):
    shell.run("mkdir d; echo kept > d/f; chmod 750 d/f; ln -s f d/link; mkfifo pipe")
    stopped = shell.run("echo more > d/g; sleep 60", replace(SMALL.limits, wall=0.5))
    assert (stopped.timed_out, shell.is_started) == (True, False)
    assert stopped.stderr.endswith("took longer than 0.5 s; its files are kept\n")
    result = shell.start().run("cat d/link d/g; stat -c %a d/f")
    assert (result.stdout, result.stderr) == ("kept\nmore\n750\n", "")


def test_groups_of_servers_that_have_ended_are_removed():
    parents, _ = cgroup._find_parents()  # pyright: ignore[reportPrivateUsage]
    stale = [parent / f"{PREFIX}{2**22 + 1}-0" for parent in parents.values()]
    for folder in stale:
        folder.mkdir(exist_ok=True)
    cgroup._find_parents.cache_clear()  # pyright: ignore[reportPrivateUsage]
    ControlGroup(2**26, 8).remove()
    assert not any(folder.exists() for folder in stale)


def test_a_shell_without_control_groups_is_absent_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def unavailable() -> None:
        raise cgroup._unavailable("read-only file system")  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(cgroup, "_find_parents", unavailable)
    report = examine_shell()
    assert (report.ok, report.outcomes) == (False, ())
    assert "no control group can be made" in str(report.reason)
    assert "read-only file system" in str(report.reason)
    with pytest.raises(SandboxError, match="control group"):
        Sandbox(SHELL_SPEC).start()


def test_a_shell_needs_tier_a():
    with pytest.raises(ValidationError, match="tier B cannot start processes"):
        SandboxSpec("B", shell=True)


def test_sparse_and_numerous_files_are_not_copied(shell: Sandbox):
    shell.run("truncate -s 4M a b")  # more than the workspace
    with pytest.raises(ValidationError, match="cannot be copied"):
        shell.files.pack()
    stopped = shell.run("sleep 60", replace(SMALL.limits, wall=0.3))
    assert stopped.stderr.endswith("its files are lost, because there were too many\n")
    assert shell.start().run("ls").stdout == ""


def test_signals_have_their_usual_effect(shell: Sandbox):
    assert shell.run("yes | head -1; kill -INT 1").stdout == "y\n"
    assert shell.run("yes | head -1 > /dev/null; echo ${PIPESTATUS[0]}").stdout == "141\n"
    assert shell.run("kill -INT $$; echo not reached").exit_code == -2
