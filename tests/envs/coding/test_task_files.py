"""Tasks in files: JSONL rows of three formats, folders, and errors that name the place."""

import json
from pathlib import Path
from typing import Any

import pytest

from tropism import Session, ValidationError, make
from tropism.envs.coding.coding import Coding
from tropism.envs.coding.task_files import load_tasks, resolve_tasks

REASON = Coding.unavailable_reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Return twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate([1]) == [1, 1]\n",
}
MBPP: dict[str, Any] = {
    "task_id": 2,
    "text": "Write a function to find the shared elements of two lists.",
    "code": "def helper(x): return set(x)\ndef shared(a, b): return helper(a) & helper(b)",
    "test_setup_code": "import math",
    "test_list": ["assert set(shared([1, 2], [2])) == {2}", "assert math.prod(shared([3, 4], [3, 4])) == 12"],
}


def solve(tasks: Any, code: str) -> float:
    with Session(*make("Coding-v0", tasks=tasks)) as session:
        session.reset(seed=0)
        return session.step({"code": code, "submit": True}).reward


def test_user_tasks_are_loaded_from_a_file(tmp_path: Path):
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"prompt": "Write one().", "functions": ["one"], "tests": ["assert one() == 1"]},
        {"name": "two", "prompt": "Write two().", "functions": ["two"], "tests": ["assert two() == 2"]},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    first, second = load_tasks(path)
    assert (first.name, second.name) == (f"{path}, line 1", "two")
    with Session(*make("Coding-v0", tasks=str(path))) as coding:
        name = coding.reset(seed=0).obs.prompt.split()[1][:3]
        assert coding.step({"code": f"def {name}(): return {1 if name == 'one' else 2}", "submit": True}).reward == 1.0
        assert Session.restore(coding.snapshot()).timestep.reward == 1.0


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"prompt": "x", "functions": ["f"]}',
        '{"prompt": "x", "functions": [], "tests": ["1"]}',
        '{"prompt": "x", "functions": ["f g"], "tests": ["1"]}',
        '{"prompt": 3, "functions": ["f"], "tests": ["1"]}',
        '{"prompt": "x", "functions": ["f"], "tests": ["1"], "more": 1}',
        '{"prompt": "x", "functions": ["f"], "tests": ["1"], "submissions": 0}',
        '{"prompt": "x", "functions": ["f"], "tests": ["1"], "examples": "1"}',
    ],
)
def test_an_error_names_the_bad_line(line: str, tmp_path: Path):
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(ValidationError, match="line 2"):
        load_tasks(path)


def test_bad_sources_are_rejected(tmp_path: Path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for tasks in ("nowhere.jsonl", str(empty), 3, (), ("x",)):
        with pytest.raises(ValidationError):
            resolve_tasks(tasks)


def test_rows_of_humaneval_and_mbpp_are_read(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(HUMANEVAL)}\n{json.dumps(MBPP)}\n")
    first, second = load_tasks(path)
    assert (first.name, first.functions, len(first.tests)) == ("HumanEval/0", ("double",), 1)
    assert (second.name, second.functions, second.examples) == ("2", ("shared",), (MBPP["test_list"][0],))
    assert solve((first,), HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"]) == 1.0
    assert solve((first,), "def double(x): return 4") == 0.0
    assert solve((second,), MBPP["code"]) == 1.0
    assert solve((second,), "def shared(a, b): return [2]") == 0.5


def test_a_folder_has_a_prompt_tests_examples_and_settings(tmp_path: Path):
    for name in ("one", "two"):
        for part in ("tests", "examples"):
            (tmp_path / name / part).mkdir(parents=True)
        (tmp_path / name / "prompt.md").write_text(f"Write {name}().")
        (tmp_path / name / "task.json").write_text(json.dumps({"functions": [name], "submissions": 2}))
        (tmp_path / name / "tests" / "test_value.py").write_text(f"assert {name}() == 1")
        (tmp_path / name / "examples" / "first.py").write_text(f"assert {name}() > 0")
    first, second = load_tasks(tmp_path)
    assert (first.name, second.name, first.submissions) == ("one", "two", 2)
    assert load_tasks(tmp_path / "two") == (second,)
    with Session(*make("Coding-v0", tasks=str(tmp_path / "one"))) as session:
        assert session.reset(seed=0).obs.prompt == "Write one().\n\nExamples:\n\nassert one() > 0"
        assert session.step({"code": "def one(): return 1", "submit": True}).reward == 1.0
    (tmp_path / "two" / "task.json").unlink()
    with pytest.raises(ValidationError, match=r"task\.json"):
        load_tasks(tmp_path)
