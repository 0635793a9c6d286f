"""Messages of Shell-v0."""

from dataclasses import dataclass

from tropism.wire.messages import Action, Observation


@dataclass(frozen=True, kw_only=True)
class ShellAction(Action):
    """A bash command, and its time limit in seconds, if not the default."""

    command: str
    timeout: float | None = None


@dataclass(frozen=True, kw_only=True)
class ShellObservation(Observation, environment="Shell-v0"):
    """The output and exit code of the command; minus the signal if it was killed by one."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    timed_out: bool = False
    truncated_output: bool = False
