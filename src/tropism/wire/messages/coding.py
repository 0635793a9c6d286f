"""Messages of Coding-v0."""

from dataclasses import dataclass

from tropism.wire.messages import Action, Observation


@dataclass(frozen=True, kw_only=True)
class CodeAction(Action):
    """Python code to run in the session's interpreter; with `submit` it is the solution of the task, if any, and ends
    the episode."""

    code: str
    submit: bool = False


@dataclass(frozen=True, kw_only=True)
class CodeObservation(Observation, environment="Coding-v0"):
    """The output and exit code of the code: 0, 1 after an exception, or minus the signal that killed it.

    `lost`: the interpreter ended, and with it all variables; the last line of `stderr` gives the reason.
    `prompt` is the task, if any; `metadata` has the sandbox's tier and a digest of all results so far.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    timed_out: bool = False
    truncated_output: bool = False
    lost: bool = False
    prompt: str = ""
