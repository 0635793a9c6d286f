"""Tasks that are small repositories: files in the workspace, a test command, and hidden files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tropism import Session, Task, ValidationError, make
from tropism.envs.coding.task_files import load_tasks
from tropism.envs.coding.tasks import split_command
from tropism.sandbox.pool import unavailable_reason

REASON = unavailable_reason("A")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
INVOICE = Path(__file__).parents[3] / "examples" / "tasks" / "invoice"
TEST = b"import unittest, code_\nclass T(unittest.TestCase):\n  def test(self): self.assertEqual(code_.f(2), 4)"
TASK = Task(
    "double",
    "Correct code_.py.",
    command="python -m unittest -q test_code",
    files=(("code_.py", b"def f(x): return x\n"), ("test_code.py", b"")),
    hidden_files=(("test_code.py", TEST),),
    submissions=10,
)
SOLUTION = "open('code_.py', 'w').write('def f(x): return 2 * x')"


def run(*actions: dict[str, Any], task: Task = TASK) -> list[float]:
    with Session(*make("Coding-v0", tasks=(task,), tier="A")) as coding:
        coding.reset(seed=0)
        return [coding.step(action).reward for action in actions]


def test_a_submission_is_the_workspace():
    rewards = run({"code": "", "submit": True}, {"code": SOLUTION}, {"code": "", "submit": True})
    assert rewards == [0.0, 0.0, 1.0]


def test_the_files_are_there_from_the_beginning_and_after_a_lost_interpreter():
    with Session(*make("Coding-v0", tasks=(TASK,), tier="A")) as coding:
        coding.reset(seed=0)
        assert coding.files() == {"code_.py": 19, "test_code.py": 0}
        assert coding.step({"code": "import code_; code_.f(3)"}).obs.stdout == "3\n"
        coding.step({"code": "import os; os.remove('code_.py'); os._exit(1)"})
        assert coding.files() == {"code_.py": 19, "test_code.py": 0}


def test_a_test_of_the_agent_is_replaced():
    fake = "open('test_code.py', 'w').write('')"
    assert run({"code": fake, "submit": True}) == [0.0]


@pytest.mark.parametrize("code", ["1 / 0", "import os; os._exit(0)", "while True: pass"])
def test_code_that_fails_ends_or_loops_does_not_pass(code: str):
    write = f"open('code_.py', 'w').write({code!r})"
    with Session(*make("Coding-v0", tasks=(TASK,), tier="A", wall=0.5, cpu=0.5)) as coding:
        coding.reset(seed=0)
        assert coding.step({"code": write, "submit": True}).reward == 0.0


def test_a_script_may_be_the_command():
    script = (("check.py", b"import sys, code_; sys.exit(code_.f(int(sys.argv[1])) != 14)"),)
    task = Task("x", "x", command="python check.py 7", files=TASK.files, hidden_files=script)
    assert run({"code": SOLUTION, "submit": True}, task=task) == [1.0]


def test_a_folder_is_a_task():
    [task] = load_tasks(INVOICE)
    assert (task.name, task.submissions) == ("invoice", 3)
    assert [path for path, _ in task.files] == ["invoice/items.py", "invoice/tax.py", "invoice/total.py"]
    assert [path for path, _ in task.hidden_files] == ["tests/test_total.py"]


def test_a_row_of_a_file_is_a_task(tmp_path: Path):
    row = {"prompt": "x", "command": "python -m unittest", "files": {"a.py": "x = 1"}, "hidden_files": {"t.py": ""}}
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(row))
    [task] = load_tasks(path)
    assert (task.files, task.hidden_files) == ((("a.py", b"x = 1"),), (("t.py", b""),))


@pytest.mark.parametrize("command", ["", "make test", "python", "python -c pass", "python -m", "python 'a"])
def test_other_commands_are_refused(command: str):
    with pytest.raises(ValidationError, match="command"):
        split_command(command)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"command": "python a.py", "files": (("../a", b""),)},
        {"functions": ("f",), "tests": ("1",), "files": (("a", b""),)},
    ],
)
def test_invalid_tasks_are_refused(fields: dict[str, Any]):
    with pytest.raises(ValidationError):
        Task("x", "x", **fields)


def test_tier_b_refuses_tasks_with_files():
    reason = unavailable_reason("B")
    if reason is not None:
        pytest.skip(reason)
    with pytest.raises(ValidationError, match="tier B has no workspace"):
        make("Coding-v0", tasks=(TASK,), tier="B")


def test_sparse_files_cannot_exhaust_the_memory_of_the_server():
    sparse = "for n in range(9): open(f'f{n}', 'wb').truncate(2**23)"
    with Session(*make("Coding-v0", tasks=(TASK,), tier="A")) as coding:
        coding.reset(seed=0)
        with pytest.raises(ValidationError, match="cannot be copied"):
            coding.step({"code": sparse, "submit": True})
        assert coding.step_count == 0
        assert coding.step({"code": SOLUTION, "submit": True}).reward == 1.0
