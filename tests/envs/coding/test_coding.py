"""Coding: variables, replayed transcripts, tasks, and submissions that try to cheat."""

import inspect
import os
import pickle
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.specs import spec_or_skip

from tropism import DivergedError, Session, UnknownEnvironmentError, ValidationError, check_environment, make
from tropism.core import registry
from tropism.envs.coding import tasks as coding_tasks
from tropism.envs.coding.coding import Coding
from tropism.envs.coding.tasks import BUILT_IN, Task
from tropism.wire.messages.coding import CodeAction, CodeObservation

REASON = Coding.unavailable_reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

SQUARE = Task(
    "square",
    "Write square(x).",
    ("square",),
    ("assert square(7) == 49", "assert square(-3) == 9", "assert [square(x) for x in (1, 2)] == [1, 4]"),
)


def session(**arguments: Any) -> Session:
    return Session(*make("Coding-v0", **arguments))


def submit(code: str, *tasks: Task, **arguments: Any) -> Any:
    with session(tasks=tasks or (SQUARE,), **arguments) as coding:
        coding.reset(seed=0)
        return coding.step(CodeAction(code=code, submit=True))


def test_a_step_runs_code_and_variables_persist_until_the_reset():
    with session() as coding:
        first = coding.reset(seed=0)
        assert first.obs == CodeObservation(metadata={"step": 0, "tier": first.obs.metadata["tier"], "digest": ""})
        coding.step({"code": "x = 20"})
        then = coding.step(CodeAction(code="x += 1\nprint(2 * x)"))
        assert (then.obs.stdout, then.obs.stderr, then.obs.exit_code) == ("42\n", "", 0)
        assert (then.reward, then.terminated, then.truncated) == (0.0, False, False)
        assert (then.obs.metadata["step"], then.obs.metadata["tier"] in "AB") == (2, True)
        coding.reset(seed=0)
        assert "NameError" in coding.step({"code": "print(x)"}).obs.stderr


def test_a_traceback_names_the_step_that_the_client_counts():
    with session() as coding:
        coding.reset(seed=0)
        assert '"<step 1>", line 1' in coding.step({"code": "1 / 0"}).obs.stderr
        coding.step({"code": "def f():\n    return 1 / 0"})
        coding.step({"code": "import os; os._exit(7)"})  # the next step runs in another interpreter
        assert '"<step 4>", line 2' in coding.step({"code": "\n1 / 0"}).obs.stderr
        twin = Session.restore(coding.snapshot())
        assert '"<step 5>", line 1' in twin.step({"code": "1 / 0"}).obs.stderr
        twin.close()


@pytest.mark.slow
def test_a_step_that_ends_the_interpreter_does_not_end_the_episode():
    with session(wall=2.0) as coding:
        coding.reset(seed=0)
        coding.step({"code": "x = 1"})
        stopped = coding.step({"code": "while True: pass"})
        assert (stopped.obs.timed_out, stopped.obs.lost, stopped.terminated) == (True, True, False)
        assert "NameError" in coding.step({"code": "x"}).obs.stderr
        assert coding.step({"code": "import os; os._exit(7)"}).obs.exit_code == 7
        assert coding.step({"code": "y = 2; print(y)"}).obs.stdout == "2\n"
        assert coding.fork().step({"code": "print(y)"}).obs.stdout == "2\n"


def test_forks_snapshots_and_pickles_continue_from_the_transcript():
    with session(tasks="built-in") as coding:
        coding.reset(seed=3)
        coding.step({"code": "import random\nx = [random.random(), object(), {'a', 'b'}]"})
        expected = coding.step({"code": "print(x)"}).obs.stdout
        for twin in (coding.fork(), Session.restore(coding.snapshot()), pickle.loads(pickle.dumps(coding))):
            with twin:
                twin.step({"code": "x.append(1)"})
                assert twin.step({"code": "print(x)"}).obs.stdout == expected.replace("]", ", 1]")
        assert coding.step({"code": "print(x)"}).obs.stdout == expected


@pytest.mark.parametrize("later", ["", "x = 1"])
def test_an_episode_that_is_not_reproducible_raises(later: str):
    with session() as coding:
        coding.reset(seed=0)
        coding.step({"code": "import time; print(time.perf_counter_ns())"})
        coding.step({"code": later})
        with pytest.raises(DivergedError):
            coding.fork()
        with pytest.raises(DivergedError):
            Session.restore(coding.snapshot())


def test_an_older_state_is_replayed_and_compared():
    env, params = make("Coding-v0")
    _, state = env.reset(1, params)
    step = lambda state, code: env.step(0, state, CodeAction(code=code), params)[:2]  # noqa: E731
    _, one = step(state, "x = 1")
    _, two = step(one, "x += 1")
    assert step(two, "print(x)")[0].stdout == "2\n"
    obs, again = step(one, "print(x)")
    assert obs.stdout == "1\n"
    env.close(again)
    assert step(again, "print(x)")[0].stdout == "1\n"
    _, clock = step(one, "import time; print(time.perf_counter_ns())")
    env.close(clock)
    with pytest.raises(DivergedError, match="step 2 gave another result"):
        step(clock, "1")


@pytest.mark.slow
def test_the_conformance_checks_pass_with_tasks():
    report = check_environment(make("Coding-v0", tasks="built-in", max_steps=5))
    assert report.ok, str(report)


def test_the_last_step_truncates():
    with session(max_steps=2) as coding:
        coding.reset(seed=0)
        assert not coding.step({"code": ""}).truncated
        assert coding.step({"code": ""}).truncated


@pytest.mark.slow
@pytest.mark.parametrize("exercise", BUILT_IN, ids=lambda exercise: exercise.reference.__name__)
def test_a_built_in_task_is_solved_by_its_reference_only(exercise: Any):
    name = exercise.reference.__name__
    source = "import re\nfrom collections.abc import Sequence\n" + inspect.getsource(getattr(coding_tasks, name))
    with session(tasks=(exercise,)) as coding:
        for seed in (0, 1):
            prompt = coding.reset(seed=seed).obs.prompt
            assert name in prompt
            coding.step({"code": f"{source}\nprint({name})"})
            then = coding.step({"code": source, "submit": True})
            assert (then.reward, then.terminated) == (1.0, True)
            assert "passed" not in then.obs.metadata
        coding.reset(seed=0)
        assert coding.step({"code": f"def {name}(x): return None", "submit": True}).reward == 0.0


def test_the_seed_chooses_the_task_and_its_tests():
    tasks = set()
    with session(tasks="built-in") as coding:
        for seed in range(20):
            name = coding.reset(seed=seed).obs.metadata["task"]
            assert coding.reset(seed=seed).obs.metadata["task"] == name
            tasks.add(name)
    assert tasks == {exercise.reference.__name__ for exercise in BUILT_IN}


def test_the_reward_is_the_fraction_of_tests_passed():
    then = submit("def square(x): return x * x if x > 0 else -1")
    assert then.reward == pytest.approx(2 / 3)
    assert not {"passed", "tests", "results"} & set(then.obs.metadata)
    assert submit("def square(x): return x * x").reward == 1.0


def test_a_task_may_allow_feedback_and_several_submissions():
    task = replace(SQUARE, submissions=3, feedback=True)
    with session(tasks=(task,)) as coding:
        coding.reset(seed=0)
        first = coding.step({"code": "def square(x): return 49 if x == 7 else 0", "submit": True})
        assert (first.reward, first.terminated) == (pytest.approx(1 / 3), False)
        assert first.obs.metadata["results"] == [True, False, False]
        assert coding.step({"code": "def square(x): return 0", "submit": True}).reward == 0.0
        last = coding.step({"code": "def square(x): return x * x if x > 0 else 0", "submit": True})
        assert (last.reward, last.terminated) == (pytest.approx(1 / 3), True)
        assert (last.obs.metadata["passed"], last.obs.metadata["tests"]) == (2, 3)
        coding.reset(seed=0)
        solved = coding.step({"code": "def square(x): return x * x", "submit": True})
        assert (solved.reward, solved.terminated) == (1.0, True)


def test_a_replay_takes_the_recorded_grade():
    lottery = "import os\ndef square(x): return x * x if os.urandom(1)[0] % 2 else 0"
    for seed in range(4):  # graded again, half of the tests would give another result
        with session(tasks=(SQUARE,)) as coding:
            coding.reset(seed=seed)
            reward = coding.step({"code": lottery, "submit": True}).reward
            assert Session.restore(coding.snapshot(), coding.env).timestep.reward == reward
            assert coding.fork().timestep.reward == reward


def test_random_does_not_reveal_the_seed_of_a_task():
    code = "import random; print(random.getstate())"
    with session(tasks=(SQUARE,)) as coding:
        states = set()
        for seed in (1, 2):
            coding.reset(seed=seed)
            states.add(coding.step({"code": code}).obs.stdout)
        assert len(states) == 1
    with session() as coding:
        for seed in (1, 2):
            coding.reset(seed=seed)
            states.add(coding.step({"code": code}).obs.stdout)
        assert len(states) == 3


def test_only_values_and_exceptions_are_passed_to_the_tests():
    task = Task(
        "f",
        "",
        ("f",),
        (
            "assert f((1, [2.5, None], {'a': {1, 2}}), b'x') == [(1, [2.5, None], {'a': {1, 2}}), b'x', True]",
            "try: f(0, 0, 0)\n"
            "except SubmissionError as error: assert (error.name, str(error)) == ('ValueError', 'three')\n"
            "else: assert False",
            "import numpy\nassert f(1, 2) == [1, 2, True]",
            "assert f(1, 2)[0].__class__ is int",
        ),
    )
    code = """
import numpy
def f(*args):
    if len(args) == 3: raise ValueError('three')
    return [*args, numpy.bool_(1)]
"""
    assert submit(code, task).reward == 1.0


FORGE = """
import gc, struct
channel = next(each for each in gc.get_objects() if type(each).__name__ == 'Channel')
def forge():
    for _ in range(50): channel.send(b'D', struct.pack('<i', 0))
"""
SEARCH = """
import gc, os, re, sys
def square(x):
    found = [thing for thing in gc.get_objects() if isinstance(thing, (str, bytes)) and 'assert square' in str(thing)]
    frame = sys._getframe()
    while frame:
        found += re.findall(r'assert square\\(-?\\d+\\) == (\\d+)', repr(frame.f_locals) + repr(frame.f_globals))
        frame = frame.f_back
    try:
        found += re.findall(rb'square\\(-?\\d+\\) == (\\d+)', open('/proc/self/mem', 'rb').read())
    except (OSError, ValueError):
        pass
    return int(found[0]) if found else -1
"""
PATCH = """
import gc, types
for f in gc.get_objects():
    if isinstance(f, types.FunctionType) and f.__name__ in ('run', 'test', 'call'): f.__code__ = (lambda *a: 0).__code__
"""
WRONG = "def square(x): return 0"
CHEATS = {
    "end the test's loop": "def square(x): raise StopIteration",
    "end the test's generator": "def square(x): raise GeneratorExit",
    "be an assertion": "def square(x): raise AssertionError",
    "answer a malformed value": f"{FORGE}def square(x): channel.send(b'V', b'[\"set\", [[\"list\", []]]]')",
    "equal to everything": "class E(int):\n    def __eq__(self, other): return True\ndef square(x): return E()",
    "equal, in a list": "class E:\n    def __eq__(self, other): return True\nsquare = lambda x: [E()]",
    "exit early": "import os\ndef square(x): os._exit(0)",
    "exit at once": "import sys; sys.exit(0)",
    "exit cleanly": "def square(x): raise SystemExit(0)",
    "print fake results": "def square(x): print('3 passed'); print('D\\x04')",
    "forge the answer": f"{FORGE}def square(x): forge()",
    "forge it beforehand": f"{FORGE}forge()\ndef square(x): return 0",
    "forge it from a thread": f"{FORGE}import threading\ndef square(x):\n    threading.Thread(target=forge).start()",
    "patch the builtins": f"import builtins\nbuiltins.AssertionError = builtins.exec = lambda *a: None\n{WRONG}",
    "redefine a builtin": f"def isinstance(*a): return True\nAssertionError = None\nint = lambda *a: 0\n{WRONG}",
    "replace modules": "import sys\nfor name in list(sys.modules): sys.modules[name] = None\ndef square(x): return 0",
    "patch the worker": f"{PATCH}{WRONG}",
    "trace": "import sys\nsys.settrace(lambda *a: None)\ndef square(x): return 0",
    "answer at exit": f"{FORGE}import atexit; atexit.register(forge)\ndef square(x): return 0",
    "look for the tests": SEARCH,
    "too large an answer": "def square(x): return 'x' * 10**7",
    "too deep an answer": "def square(x):\n    y = []\n    for _ in range(900): y = [y]\n    return y",
    "raise an unprintable": "class E(BaseException):\n    def __str__(self): raise self\ndef square(x): raise E",
    "not defined": "",
    "no function": "square = 3",
}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
def test_a_submission_that_cheats_earns_nothing(cheat: str):
    then = submit(cheat, wall=2.0)
    assert (then.reward, then.terminated) == (0.0, True)


@pytest.mark.parametrize("error", ["StopIteration", "GeneratorExit", "StopAsyncIteration", "SystemExit(0)"])
def test_an_exception_does_not_end_the_loops_of_a_test(error: str):
    task = replace(SQUARE, tests=("for x, y in zip((1, 2), map(square, (1, 2))): assert x * x == y",))
    assert submit(f"def square(x): raise {error}", task).reward == 0.0


def test_steps_before_the_submission_do_not_affect_its_tests():
    with session(tasks=(SQUARE,)) as coding:
        coding.reset(seed=0)
        coding.step({"code": "import builtins\nbuiltins.AssertionError = None\ndef square(x): return x * x"})
        assert coding.step({"code": "pass", "submit": True}).reward == 0.0


def test_a_submission_that_never_returns_ends_in_time():
    start = time.monotonic()
    assert submit("def square(x):\n    while True: pass", wall=0.3).reward == 0.0
    assert time.monotonic() - start < 10


def test_bad_arguments_are_rejected():
    with pytest.raises(ValidationError, match="max_steps"):
        make("Coding-v0", max_steps=0)
    with pytest.raises(ValidationError, match="memory"):
        make("Coding-v0", memory=-1)


def test_text_is_parsed_as_code():
    with session(tasks=(SQUARE,)) as coding:
        coding.reset(seed=0)
        assert "Task: Write square(x)." in coding.describe()
        assert coding.parse("print(1)") == CodeAction(code="print(1)")
        assert coding.parse("Let us see:\n```python\nprint(1)\n```\n") == CodeAction(code="print(1)\n")
        assert coding.parse('{"code": "1", "submit": true}') == CodeAction(code="1", submit=True)
        coding.step(coding.parse("print(6 * 7)"))
        assert "stdout:\n42" in coding.describe()


def test_an_unavailable_environment_reports_the_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Coding, "unavailable_reason", classmethod(lambda cls: "the sandbox leaks"))
    assert "Coding-v0" not in [spec.id for spec in registry.registered()]
    assert registry.unavailable_reasons()["Coding-v0"] == "the sandbox leaks"
    with pytest.raises(UnknownEnvironmentError, match="no environment 'Coding-v0' here: the sandbox leaks"):
        make("Coding-v0")


def test_coding_is_available_where_only_the_second_tier_is(tmp_path: Path):
    spec_or_skip("B")
    script = "from tropism.core.registry import unavailable_reasons; print(unavailable_reasons())"
    found = shutil.which("setpriv")  # the only program that tier B needs
    if found is not None:
        (tmp_path / "setpriv").symlink_to(found)
    hidden = {**os.environ, "PATH": str(tmp_path)}  # without bubblewrap
    done = subprocess.run([sys.executable, "-c", script], env=hidden, capture_output=True, text=True, check=True)
    assert "Coding-v0" not in done.stdout
    assert "bubblewrap is not installed" in done.stdout  # the reason why Shell-v0 is absent
