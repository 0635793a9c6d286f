"""An attack: its code, and the oracle, a check on the host that detects its success."""

import os
import shlex
import signal
from collections.abc import Callable
from dataclasses import dataclass

from tropism.sandbox.host_targets import HostTargets, is_locked, received_descriptor, was_contacted
from tropism.sandbox.limits import Limits
from tropism.sandbox.sandbox import ExecutionResult

Oracle = Callable[[HostTargets, ExecutionResult], bool]
QUICK = Limits(wall=0.4, cpu=0.4, output=2000)
FORGED_EXIT_CODE = 77
PATIENT = Limits(wall=3.0, cpu=3.0, output=2000)


def changes_file(targets: HostTargets, _: ExecutionResult) -> bool:
    return targets.file_changed()


def creates_file(targets: HostTargets, _: ExecutionResult) -> bool:
    return targets.new_file_exists()


def reaches_socket(name: str) -> Oracle:
    """Detects traffic on this target socket."""
    return lambda targets, _: was_contacted(targets.sockets[name])


def passes_descriptor(targets: HostTargets, _: ExecutionResult) -> bool:
    return received_descriptor(targets.sockets["datagram"])


def kills_decoy(targets: HostTargets, _: ExecutionResult) -> bool:
    return targets.decoy.poll() == -signal.SIGKILL


def exceeds_time(_: HostTargets, result: ExecutionResult) -> bool:
    """The code ended by itself, although it needs longer than its limit."""
    return not (result.timed_out or result.interpreter_lost)


def exceeds_output(_: HostTargets, result: ExecutionResult) -> bool:
    return len(result.stdout + result.stderr) > 2 * QUICK.output


def locks_shared_file(*_: object) -> bool:
    """The worker holds a POSIX lock or a lock of flock on a file of the interpreter, which all workers share."""
    return is_locked(os.__file__)


def answers_for_later_step(_: HostTargets, result: ExecutionResult) -> bool:
    """The exit code of the second step is one that the first step has sent."""
    return result.exit_code == FORGED_EXIT_CODE


def leaves_processes(targets: HostTargets, _: ExecutionResult) -> bool:
    """A process that has the secret in its arguments still runs after the step."""
    return targets.kill_leftovers() > 0


@dataclass(frozen=True)
class Attack:
    """It succeeds if it prints the secret, which it can only read or reach by succeeding, or if `oracle` is true.

    `harmless` attacks can be run without a sandbox, to test their oracle; `needs_root` attacks then succeed only
    as root. `later` is code of a second step, run after a pause. `changes_worker`: the worker is used for no other
    attack, because even a blocked one may end it or leave threads. `at_startup`: quick enough for every start of a
    server. `submission`: the code is a wrong solution of a task, and succeeds by passing its hidden test. `shell`: the
    code is a bash command."""

    name: str
    code: str
    later: str = ""
    oracle: Oracle | None = None
    harmless: bool = True
    needs_root: bool = False
    changes_worker: bool = False
    at_startup: bool = True
    submission: bool = False
    shell: bool = False
    limits: Limits = PATIENT

    def has_succeeded(self, targets: HostTargets, result: ExecutionResult) -> bool:
        printed = targets.secret in result.stdout + result.stderr
        return printed or (self.oracle is not None and self.oracle(targets, result))

    def code_for(self, targets: HostTargets) -> str:
        """The code, after definitions of the targets' variables."""
        variables = targets.variables().items()
        if self.shell:
            words = {name: value if isinstance(value, tuple) else (value,) for name, value in variables}
            return "\n".join(
                [*(f"{name}={shlex.quote(' '.join(map(str, parts)))}" for name, parts in words.items()), self.code]
            )
        return "\n".join([*(f"{name} = {value!r}" for name, value in variables), self.code])


LIBC = "import ctypes, os, platform; libc = ctypes.CDLL(None, use_errno=True)\n"
SYSCALL = LIBC + "arm = platform.machine() == 'aarch64'\n"
