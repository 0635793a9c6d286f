"""Tasks read from files: JSONL of this package, of HumanEval or of MBPP, and folders with one file per test."""

import ast
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tropism.envs.coding.tasks import BUILT_IN, Exercise, Files, Task, Tasks
from tropism.errors import ValidationError

REQUIRED = ({"prompt", "functions", "tests"}, {"prompt", "command"})
OPTIONAL = {"name", "examples", "submissions", "feedback", "files", "hidden_files", "shared_interpreter"}
EXPECTED = (
    'an object with "prompt" (a string), "functions" and "tests" (lists of strings) or "command" (a string), and '
    'optionally "name", "examples" (a list of strings), "submissions" (a number), "feedback" and "shared_interpreter" '
    '(true or false), "files" and "hidden_files" (objects of strings, by path); or a row of HumanEval or MBPP'
)
PROMPT, SETTINGS = "prompt.md", "task.json"
FILES, HIDDEN_FILES = "files", "hidden"  # folders


def resolve_tasks(source: Any) -> Tasks:
    """None, "built-in", the path of a file or folder, or a sequence of tasks."""
    if source is None:
        return ()
    if source == "built-in":
        return BUILT_IN
    if isinstance(source, str | Path):
        return load_tasks(source)
    if isinstance(source, Sequence) and source and all(isinstance(each, Task | Exercise) for each in source):
        return tuple(source)
    raise ValidationError("tasks", source, "None, 'built-in', the path of a file or folder, or a sequence of tasks")


def load_tasks(path: str | Path) -> tuple[Task, ...]:
    """The tasks of a JSONL file, of a folder with a prompt and tests, or of a folder of such folders."""
    place = Path(path)
    if place.is_dir():
        folders = [place] if (place / PROMPT).exists() else sorted(each.parent for each in place.glob(f"*/{PROMPT}"))
        tasks = tuple(map(_load_folder, folders))
    else:
        rows = enumerate(_read_text(place).splitlines(), 1)
        tasks = tuple(_read_line(line, f"{path}, line {number}") for number, line in rows if line.strip())
    if not tasks:
        raise ValidationError("tasks", str(path), "a file or folder with at least one task")
    return tasks


def _load_folder(folder: Path) -> Task:
    """`prompt.md`, and `task.json` with the functions or the command and other settings. Of functions: `tests/*.py`,
    optionally `examples/*.py`; of a command: the folders `files` and `hidden`."""
    try:
        settings = json.loads(_read_text(folder / SETTINGS))
    except ValueError as error:
        raise ValidationError(str(folder / SETTINGS), None, f"JSON ({error})") from None
    row = {
        "name": folder.name,
        "prompt": _read_text(folder / PROMPT),
        "tests": [_read_text(path) for path in sorted(folder.glob("tests/*.py"))],
        "examples": [_read_text(path) for path in sorted(folder.glob("examples/*.py"))],
    }
    if isinstance(settings, dict) and "command" in settings:
        row = {"name": folder.name, "prompt": row["prompt"]}
    task = _from_row(row | settings if isinstance(settings, dict) else settings, str(folder))
    return replace(task, files=_read_folder(folder / FILES), hidden_files=_read_folder(folder / HIDDEN_FILES))


def _read_folder(folder: Path) -> Files:
    """The files below a folder, by their paths in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return tuple((path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths)


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ValidationError("tasks", str(path), f"a file that can be read ({error.strerror})") from None


def _read_line(line: str, place: str) -> Task:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValidationError(place, line, f"JSON ({error})") from None
    return _from_row(row, place)


def _from_row(row: Any, place: str) -> Task:
    convert = next((each for names, each in CONVERTERS if isinstance(row, dict) and names <= set(row)), None)
    try:
        row = row if convert is None else convert(row)
    except (SyntaxError, TypeError) as error:
        raise ValidationError(place, row, f"a row of HumanEval or MBPP ({error})") from None
    if not _is_valid(row):
        raise ValidationError(place, row, EXPECTED)
    return Task(
        name=str(row.get("name", place)),
        prompt=row["prompt"],
        functions=tuple(row.get("functions", ())),
        tests=tuple(row.get("tests", ())),
        examples=tuple(row.get("examples", ())),
        submissions=row.get("submissions", 1),
        feedback=row.get("feedback", False),
        command=row.get("command", ""),
        shared_interpreter=row.get("shared_interpreter", False),
        files=_encode_files(row.get("files", {})),
        hidden_files=_encode_files(row.get("hidden_files", {})),
    )


def _encode_files(files: dict[str, str]) -> Files:
    return tuple((path, text.encode()) for path, text in files.items())


def _is_valid(row: Any) -> bool:
    if not isinstance(row, dict) or not any(needed <= set(row) <= needed | OPTIONAL for needed in REQUIRED):
        return False
    submissions = row.get("submissions", 1)
    return (
        isinstance(row["prompt"], str)
        and all(_is_strings(row[field]) and row[field] for field in ("functions", "tests") if field in row)
        and _is_strings(row.get("examples", []))
        and all(name.isidentifier() for name in row.get("functions", ()))
        and isinstance(row.get("command", ""), str)
        and all(_is_file_map(row.get(field, {})) for field in ("files", "hidden_files"))
        and all(isinstance(row.get(field, False), bool) for field in ("feedback", "shared_interpreter"))
        and isinstance(submissions, int)
        and submissions >= 1
    )


def _is_file_map(value: Any) -> bool:
    return isinstance(value, dict) and _is_strings([*value, *value.values()])


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _from_humaneval(row: dict[str, Any]) -> dict[str, Any]:
    function = str(row["entry_point"])
    return {
        "name": str(row["task_id"]),
        "prompt": f"Complete this function.\n\n{row['prompt']}",
        "functions": [function],
        "tests": [f"{row['test']}\ncheck({function})"],
    }


def _from_mbpp(row: dict[str, Any]) -> dict[str, Any]:
    """The tests name the function to write, which the text does not, so the first one is shown."""
    defined = {node.name for node in ast.walk(ast.parse(row["code"])) if isinstance(node, ast.FunctionDef)}
    tests = [str(test) for test in row["test_list"]]
    called = {node.id for test in tests for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports", ()))
    return {
        "name": str(row["task_id"]),
        "prompt": str(row.get("text", row.get("prompt"))),
        "functions": sorted(defined & called),
        "tests": [f"{setup}\n{test}" for test in tests],
        "examples": tests[:1],
    }


CONVERTERS: tuple[tuple[set[str], Callable[[dict[str, Any]], dict[str, Any]]], ...] = (
    ({"task_id", "prompt", "entry_point", "test"}, _from_humaneval),
    ({"task_id", "code", "test_list"}, _from_mbpp),
)
