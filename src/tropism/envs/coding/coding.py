"""Coding: run Python step by step in a sandbox, and, where there is a task, submit a solution to hidden tests."""

import json
from hashlib import blake2b
from random import Random
from typing import Any, NamedTuple

import equinox as eqx

from tropism.core.adapters.language import Language, parse_record, strip_fence
from tropism.core.environment import Environment, Info, outcome
from tropism.core.host import Host
from tropism.core.params import EnvParams
from tropism.core.spaces import Record
from tropism.core.spaces.space import check_count
from tropism.envs.coding.interpreter import Interpreter, Transcript, TranscriptEntry, UploadedFile
from tropism.envs.coding.task_files import resolve_tasks
from tropism.envs.coding.tasks import Exercise, Task, Tasks, split_command
from tropism.envs.program_output import describe_output
from tropism.errors import StateError, ValidationError
from tropism.sandbox import doctor
from tropism.sandbox.grading import Grading, passes_command
from tropism.sandbox.limits import Limits
from tropism.sandbox.pool import SESSION_MEMORY, SandboxSpec, Tier, start_failure
from tropism.sandbox.sandbox import ExecutionResult
from tropism.wire.messages.coding import CodeAction, CodeObservation

HOW_TO_ACT = (
    "Action: Python to run, as it is or in a ``` block; "
    'as JSON, {"code": "...", "submit": true} submits it as the answer.'
)
MAX_UPLOADS = 1000  # of an episode


class CodingParams(EnvParams):
    """No parameters can be changed."""


class CodingState(NamedTuple):
    """`interpreter` has run the transcript; `step` makes another one if it was closed or has run more."""

    seed: int
    time: int
    task: Task | None
    transcript: Transcript
    digest: str
    upload_bytes: int
    submissions: int
    best_score: float
    last_grade: tuple[bool, ...] | None  # of the last step, if it was a submission
    interpreter: Interpreter


class Coding(Environment):
    """Variables persist between the steps of an episode. `tasks` are None, "built-in", the path of a JSONL file
    or of a folder, or a sequence of tasks; the seed chooses one.

    Reward: for a step that submits, by how much it improves the best fraction of hidden tests passed; 0 for others.

    Ends: terminated by a submission that passes every test, or the last that the task allows; truncated after
    `max_steps` steps.

    `tier` is the kind of sandbox, "A" or "B"; by default the first that is available. `packages` are the import
    names of packages that can be used beside the standard library, with all that they require; a string separates
    them by commas. Without a working sandbox the environment is unavailable.
    """

    host = Host(reseedable=False, isolated=True, interruptible=True, session_memory=SESSION_MEMORY)
    language = Language(tool="run_code", metadata_fields=("timed_out", "truncated_output", "lost", "prompt"))

    tasks: Tasks = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    sandbox_spec: SandboxSpec = eqx.field(static=True)

    def __init__(
        self,
        tasks: Any = None,
        max_steps: Any = 100,
        tier: Tier | None = None,
        packages: Any = ("numpy",),
        **limits: Any,
    ):
        self.tasks = resolve_tasks(tasks)
        self.max_steps = check_count("max_steps", max_steps)
        names = packages.split(",") if isinstance(packages, str) else packages
        chosen = doctor.cached_report(*(() if tier is None else (tier,))).require_tier()
        self.sandbox_spec = SandboxSpec(chosen, tuple(filter(None, names)), Limits(**limits))
        has_files = any(isinstance(task, Task) and task.command for task in self.tasks)
        if has_files and self.sandbox_spec.tier == "B":
            raise ValidationError("tasks", tasks, "tasks without files: tier B has no workspace")

    @classmethod
    def unavailable_reason(cls) -> str | None:
        report = doctor.cached_report()
        return report.reason or start_failure(report.tier)

    def default_params(self) -> CodingParams:
        return CodingParams()

    def reset(self, key: int, params: Any) -> tuple[CodeObservation, CodingState]:
        random = Random(key)
        chosen = random.choice(self.tasks) if self.tasks else None
        task = chosen.task(random) if isinstance(chosen, Exercise) else chosen
        state = CodingState(key, 0, task, (), "", 0, 0, 0.0, None, self._new_interpreter(key, task))
        return CodeObservation(prompt=task.instructions if task else "", metadata=self._metadata(state)), state

    def step(
        self, key: int, state: CodingState, action: CodeAction, params: Any
    ) -> tuple[CodeObservation, CodingState, float, bool, Info]:
        interpreter = self._interpreter(state)
        result = interpreter.run(action.code, state.time + 1)
        interpreter.transcript = transcript = (*state.transcript, TranscriptEntry(action.code, result))
        state = state._replace(
            time=state.time + 1,
            transcript=transcript,
            digest=_digest(state.digest, result),
            interpreter=interpreter,
        )
        task, reward, solved, feedback, passed = state.task, 0.0, False, {}, None
        if action.submit and task is not None:
            files = interpreter.read_files() if task.command else {}
            passed = interpreter.take_recalled() or _grade(self.sandbox_spec, task, action.code, files)
            score = sum(passed) / len(passed)
            reward = max(score - state.best_score, 0.0)
            state = state._replace(submissions=state.submissions + 1, best_score=max(score, state.best_score))
            solved = all(passed) or state.submissions >= task.submissions
            feedback = _feedback(task, passed)
        state = state._replace(last_grade=passed)
        done, info = outcome(solved, state.time >= self.max_steps)
        metadata = self._metadata(state) | feedback
        obs = _observation(result, task, done=done, reward=reward, metadata=metadata)
        return obs, state, reward, done, info

    def _interpreter(self, state: CodingState) -> Interpreter:
        """An interpreter that has run exactly the transcript."""
        if state.interpreter.transcript is state.transcript:
            return state.interpreter
        interpreter = self._new_interpreter(state.seed, state.task)
        interpreter.replay(state.transcript)
        return interpreter

    def _new_interpreter(self, key: int, task: Task | None) -> Interpreter:
        """An interpreter whose module `random` is seeded. With a task its seed does not depend on the episode's, from
        which the hidden tests are drawn: code could compute it from the state of `random`."""
        seed = _interpreter_seed(str(key) if task is None else task.prompt)
        return Interpreter(self.sandbox_spec, seed, {} if task is None else dict(task.files))

    def _metadata(self, state: CodingState) -> dict[str, Any]:
        task = {} if state.task is None else {"task": state.task.name}
        return {"step": state.time, "tier": self.sandbox_spec.tier, "digest": state.digest, **task}

    def observation_space(self, params: Any) -> Record:
        return Record(CodeObservation)

    def action_space(self, params: Any) -> Record:
        return Record(CodeAction)

    def state_fields(self, state: CodingState, params: Any) -> dict[str, Any]:
        steps = (entry for entry in reversed(state.transcript) if isinstance(entry, TranscriptEntry))
        return {"last_exit_code": next((entry.result.exit_code for entry in steps), 0)}

    def describe(self, state: CodingState, obs: CodeObservation, params: Any) -> str:
        parts = [f"Task: {obs.prompt}"] if obs.prompt else []
        if state.time:
            parts += describe_output(f"Step {state.time}", obs)
        return "\n".join([*parts, HOW_TO_ACT])

    def parse(self, text: str, params: Any) -> CodeAction:
        """The code itself, the first fenced block, or the action as JSON."""
        return parse_record(
            text, self.action_space(params), lambda words: CodeAction(code=strip_fence(words, "python", "py"))
        )

    def recorded_outcome(self, state: CodingState) -> list[bool] | None:
        return None if state.last_grade is None else list(state.last_grade)

    def recall(self, state: CodingState, outcome: list[bool]) -> None:
        """A replay takes the recorded grade; tests may depend on time or chance."""
        state.interpreter.recalled = tuple(outcome)

    def workspace(self, state: CodingState, params: Any) -> "CodingWorkspace":
        if self.sandbox_spec.tier == "B":
            message = "tier B has no workspace, because nothing is writable in it; tier A has one"
            raise StateError("tier", "B", "tier A", message)
        return CodingWorkspace(self.sandbox_spec.limits, state._replace(interpreter=self._interpreter(state)))

    def close(self, state: CodingState) -> None:
        state.interpreter.close()


class CodingWorkspace:
    """The files of an episode. Files written from outside are part of the transcript, so a replay has them too."""

    def __init__(self, limits: Limits, state: CodingState):
        self._limits = limits
        self._state = state

    def sizes(self) -> dict[str, int]:
        return self._state.interpreter.files().sizes()

    def read(self, path: str) -> bytes:
        return self._state.interpreter.files().read(path)

    def write(self, path: str, data: bytes) -> CodingState:
        state, interpreter = self._state, self._state.interpreter
        total = state.upload_bytes + len(data)
        uploads = sum(isinstance(entry, UploadedFile) for entry in state.transcript)
        if total > self._limits.files or uploads >= MAX_UPLOADS:
            limit = f"{MAX_UPLOADS} uploads and {self._limits.files} bytes of them"
            raise ValidationError("file", len(data), limit, f"an episode may have at most {limit}")
        interpreter.write(path, data)
        interpreter.transcript = transcript = (*state.transcript, UploadedFile(path, data))
        return state._replace(transcript=transcript, upload_bytes=total)


def _interpreter_seed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"interpreter").digest())


def _grade(spec: SandboxSpec, task: Task, source: str, files: dict[str, bytes]) -> tuple[bool, ...]:
    """Whether each test of the task passes; `files` are those of the workspace, which only a command needs."""
    if task.command:
        words, hidden = split_command(task.command), dict(task.hidden_files)
        return (passes_command(spec, words, files, hidden, task.shared_interpreter or not hidden),)
    return Grading(spec, source, task.functions).run_tests(task.tests)


def _feedback(task: Task, passed: tuple[bool, ...]) -> dict[str, Any]:
    """The results of the tests, if the task shows them: they give the hidden tests away to repeated submissions."""
    return {"passed": sum(passed), "tests": len(passed), "results": list(passed)} if task.feedback else {}


def _digest(before: str, result: ExecutionResult) -> str:
    """Digest of all results so far: a replay that differs in any step differs in the last digest."""
    text = json.dumps([before, result.stdout, result.stderr, result.exit_code, result.timed_out])
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _observation(result: ExecutionResult, task: Task | None, **rest: Any) -> CodeObservation:
    return CodeObservation(
        stdout=result.stdout,
        stderr=result.stderr,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        truncated_output=result.truncated_output,
        lost=result.interpreter_lost,
        prompt=task.instructions if task else "",
        **rest,
    )
