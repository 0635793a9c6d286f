"""Shell: run commands in a sandbox, with the programs of the system, files and any number of processes."""

import struct
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx

from tropism.core.adapters.language import Language, parse_record, strip_fence
from tropism.core.environment import Environment, Info, outcome
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Record
from tropism.core.spaces.space import check_count
from tropism.envs.program_output import describe_output
from tropism.errors import ValidationError
from tropism.sandbox import doctor
from tropism.sandbox.limits import MEBIBYTE, Limits
from tropism.sandbox.pool import SESSION_MEMORY, SandboxSpec, start_failure
from tropism.sandbox.sandbox import Sandbox
from tropism.wire.messages.shell import ShellAction, ShellObservation

HOW_TO_ACT = 'Action: a bash command, as it is or in a ``` block; as JSON, {"command": "...", "timeout": 30}.'
FENCED = ("bash", "sh", "shell")
SAVED = struct.Struct("<Ii")  # time and last exit code; the files follow
MAX_RANDOM = 2**15  # of bash's RANDOM


class CommandSpace(Record):
    """Commands whose timeout, if they have one, is at most `max_timeout` seconds."""

    max_timeout: int | float = eqx.field(static=True)

    def __init__(self, max_timeout: int | float):
        super().__init__(ShellAction)
        self.max_timeout = max_timeout

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> ShellAction:
        return replace(super().sample(key, shape), timeout=None)

    def contains(self, x: Any) -> bool:
        return super().contains(x) and self._allows(x.timeout)

    def coerce(self, x: Any, name: str = "action") -> ShellAction:
        action = super().coerce(x, name)
        if not self._allows(action.timeout):
            expected = f"None, or seconds: more than 0 and at most {self.max_timeout:g}"
            raise ValidationError(f"{name}.timeout", action.timeout, expected)
        return action

    def _allows(self, timeout: int | float | None) -> bool:
        return timeout is None or 0 < timeout <= self.max_timeout

    def json_schema(self) -> dict[str, Any]:
        schema = super().json_schema()
        limits = {"type": "number", "exclusiveMinimum": 0, "maximum": self.max_timeout}
        timeout = schema["properties"]["timeout"] | {"anyOf": [limits, {"type": "null"}]}
        return schema | {"properties": schema["properties"] | {"timeout": timeout}}

    def identity(self) -> tuple[Any, ...]:
        return (self.cls, self.max_timeout)


class ShellParams(EnvParams):
    """No parameters can be changed."""


class ShellState(NamedTuple):
    time: int
    last_exit_code: int
    sandbox: Sandbox


class Shell(Environment):
    """Each step runs one command in a new bash in the folder of the workspace, and then ends all its processes. Files
    persist until the reset; variables and the working folder do not. `RANDOM` is seeded from the episode's seed.

    Reward: always 0.

    Ends: truncated after `max_steps` steps.

    `timeout` is the time limit of a command in seconds; an action may ask for another one, up to `max_timeout`.
    `memory` and `files`, in bytes, and `processes` are limits of all processes together. An episode cannot be
    replayed; forks and snapshots copy its files. The environment is unavailable where no control group can be made.
    """

    host = Host(
        replayable=False,
        reseedable=False,
        copyable=True,
        isolated=True,
        interruptible=True,
        session_memory=SESSION_MEMORY,
    )

    language = Language(tool="run_command")

    max_steps: int = eqx.field(static=True)
    max_timeout: int | float = eqx.field(static=True)
    sandbox_spec: SandboxSpec = eqx.field(static=True)

    def __init__(
        self,
        max_steps: Any = 100,
        timeout: Any = 10,
        max_timeout: Any = 60,
        memory: Any = 512 * MEBIBYTE,
        files: Any = 64 * MEBIBYTE,
        output: Any = 64 * 1024,
        processes: Any = 64,
        packages: Any = ("numpy",),
    ):
        names = packages.split(",") if isinstance(packages, str) else packages
        limits = Limits(wall=timeout, cpu=timeout, memory=memory, files=files, output=output, threads=processes)
        if timeout > replace(limits, wall=max_timeout).wall:
            raise ValidationError("max_timeout", max_timeout, f"at least {timeout}, the default timeout")
        doctor.cached_shell_report().require_tier()
        self.max_steps = check_count("max_steps", max_steps)
        self.max_timeout = max_timeout
        self.sandbox_spec = SandboxSpec("A", tuple(filter(None, names)), limits, shell=True)

    @classmethod
    def unavailable_reason(cls) -> str | None:
        return doctor.cached_shell_report().reason or start_failure("A")

    def default_params(self) -> ShellParams:
        return ShellParams()

    def reset(self, key: int, params: Any) -> tuple[ShellObservation, ShellState]:
        return ShellObservation(metadata={"step": 0}), ShellState(0, 0, Sandbox(self.sandbox_spec))

    def step(
        self, key: int, state: ShellState, action: ShellAction, params: Any
    ) -> tuple[ShellObservation, ShellState, float, bool, Info]:
        command = f"RANDOM={key % MAX_RANDOM}; {action.command}"
        result = state.sandbox.start().run(command, self._limits(action.timeout))
        state = state._replace(time=state.time + 1, last_exit_code=result.exit_code)
        done, info = outcome(False, state.time >= self.max_steps)
        obs = ShellObservation(
            stdout=result.stdout,
            stderr=result.stderr,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            truncated_output=result.truncated_output,
            done=done,
            metadata={"step": state.time},
        )
        return obs, state, 0.0, done, info

    def _limits(self, timeout: int | float | None) -> Limits:
        limits = self.sandbox_spec.limits
        return limits if timeout is None else replace(limits, wall=timeout, cpu=timeout)

    def observation_space(self, params: Any) -> Record:
        return Record(ShellObservation)

    def action_space(self, params: Any) -> CommandSpace:
        return CommandSpace(self.max_timeout)

    def state_fields(self, state: ShellState, params: Any) -> dict[str, Any]:
        return {"last_exit_code": state.last_exit_code}

    def describe(self, state: ShellState, obs: ShellObservation, params: Any) -> str:
        parts = describe_output(f"Command {state.time}", obs) if state.time else []
        return "\n".join([*parts, HOW_TO_ACT])

    def parse(self, text: str, params: Any) -> ShellAction:
        """The command itself, the first fenced block, or the action as JSON."""
        return parse_record(
            text, self.action_space(params), lambda words: ShellAction(command=strip_fence(words, *FENCED))
        )

    def workspace(self, state: ShellState, params: Any) -> "ShellWorkspace":
        return ShellWorkspace(state)

    def save_state(self, state: ShellState, params: Any) -> bytes:
        return SAVED.pack(state.time, state.last_exit_code) + state.sandbox.start().files.pack()

    def load_state(self, data: bytes, params: Any) -> ShellState:
        time, last_exit_code = SAVED.unpack_from(data)
        return ShellState(time, last_exit_code, Sandbox(self.sandbox_spec, data[SAVED.size :]))

    def close(self, state: ShellState) -> None:
        state.sandbox.close()


class ShellWorkspace:
    """The files of an episode; its state is the sandbox that has them."""

    def __init__(self, state: ShellState):
        self._state = state
        self._files = state.sandbox.start().files

    def sizes(self) -> dict[str, int]:
        return self._files.sizes()

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def write(self, path: str, data: bytes) -> ShellState:
        self._files.write(path, data)
        return self._state
