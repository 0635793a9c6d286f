"""The commands in README and docs: all are parsed by the real command line, and those in blocks are run as printed."""

import re
import shlex
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
import typer.main
from tests.cli.command import run
from typer.core import TyperGroup

from tropism import cli
from tropism.core.registry import BUILT_IN

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?:console|bash|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`((?:tropism|make|python) [^`]+)`")
HELP = re.compile(r"Example: (tropism .+)")
USAGE_ERROR: Any = typer.BadParameter.__base__
ID = re.compile(r"\b[A-Z]\w*-v\d+\b")
TARGETS = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# Other words of the shell, and why they are not run.
UNCHECKED = {". .venv/bin/activate": "changes the shell that runs it"}
# Commands in blocks that are only parsed here.
NOT_RUN = {
    "make demo": ".ci/run runs it",
    "make test": ".ci/run runs it",
    "python examples/two_hosts.py": "tests/test_readme.py runs every example",
    "python deploy/local.py CartPole-v1 Echo-v0": "tests/serve/test_workers.py runs it, given Postgres and nginx",
}
# Only the amount of work differs from what is printed.
SHORTER = {
    "--total-steps 300000": "--total-steps 2048",
    "--total-steps 2000000": "--total-steps 16384",
    "--episodes 100000": "--episodes 8",
    "--episodes 10000": "--episodes 8",
    "--episodes 1000 ": "--episodes 4 ",
    "--episodes 100 ": "--episodes 4 ",
}
BRIEF = ("--total-steps", "8192")  # of a training without this option
QUICK = {"record.md", "serve.md"}


class Command(NamedTuple):
    """A command of a page, and the output that the page shows below it."""

    line: str
    output: str = ""


def printed_commands(page: Path) -> list[Command]:
    """The commands in the blocks of a page, without comments."""
    found: list[Command] = []
    for block in BLOCK.findall(page.read_text()):
        prompts = "$ " in block
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if prompts and not line.startswith("$ "):
                found[-1] = found[-1]._replace(output=line)
            elif line.strip():
                found.append(Command(re.sub(r"\s+#.*", "", line.removeprefix("$ ")).strip()))
    return found


def mentions(page: Path) -> list[str]:
    """The commands inside sentences; they may lack arguments."""
    return SPAN.findall(BLOCK.sub("", page.read_text()))


def parse(line: str, complete: bool) -> None:
    """Fail if the command line does not accept the command; unless `complete`, arguments may be missing."""
    words = shlex.split(line)[1:]
    command: Any = typer.main.get_command(cli.app)
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"{line}: no command {name}"
        command = command.commands[name]
    if isinstance(command, TyperGroup):
        options = [option for parameter in command.params for option in parameter.opts]
        assert set(words) <= set(options), line
        return
    try:
        command.make_context(line, [word for word in words if word not in ("--help", "...")])
    except USAGE_ERROR as error:
        lacks_value = "Missing" in str(error) or "requires an argument" in str(error)
        if complete or not lacks_value:
            raise


def check(line: str, complete: bool) -> None:
    """Check the command, and that what it names exists."""
    program, *words = shlex.split(line)
    assert set(ID.findall(line)) <= set(BUILT_IN), line
    if program == "tropism":
        parse(line, complete)
    elif program == "make":
        assert set(words) <= TARGETS, line
    elif program == "python" and words[0] == "-m":
        assert words[1].isupper() or find_spec(words[1]), line
    elif program == "python":
        assert words[0].isupper() or (ROOT / words[0]).exists(), line
    else:
        assert line in UNCHECKED, f"{line}: run it in a test, or say why not"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_accepted(page: Path):
    for command in printed_commands(page):
        check(command.line, complete=True)
    for line in mentions(page):
        check(line, complete=False)


def test_examples_in_help_are_accepted():
    files = [path.read_text() for path in (ROOT / "src" / "tropism" / "cli").glob("*.py")]
    lines = [line for text in files for line in HELP.findall(text)]
    assert len(lines) >= 15
    for line in lines:
        check(line, complete=True)


def test_unknown_commands_options_and_ids_are_found():
    for line in ("tropism trian CartPole-v1", "tropism train CartPole-v1 --sede 3", "tropism show CartPole-v7"):
        with pytest.raises((AssertionError, USAGE_ERROR)):
            check(line, complete=True)


def marked(page: Path) -> Any:
    return pytest.param(page, marks=pytest.mark.slow if page.name in QUICK else pytest.mark.full, id=page.name)


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if printed_commands(page)])
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In the order of the page, in one folder that also has the modules that pages define."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    for module, source in {"dot": "own.md", "my_module": "train.md"}.items():
        write_module(ROOT / "docs" / source, tmp_path / f"{module}.py")
        monkeypatch.delitem(sys.modules, module, raising=False)
    for command in printed_commands(page):
        if command.line in NOT_RUN or command.line in UNCHECKED:
            continue
        words = shlex.split(shorten(command.line))[1:]
        if words[0] == "serve":
            assert start(words, tmp_path) == command.output or not command.output
        else:
            assert run(monkeypatch, *words) == 0, command.line


def write_module(page: Path, path: Path) -> None:
    """The classes that a page defines, with its imports."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    path.write_text("\n".join(re.sub(r"^training = .*", "", block, flags=re.DOTALL | re.MULTILINE) for block in blocks))


def shorten(line: str) -> str:
    for printed, shorter in SHORTER.items():
        line = f"{line} ".replace(printed, shorter).strip()
    needs_total = line.startswith("tropism train") and "--total-steps" not in line and "--resume" not in line
    return f"{line} {' '.join(BRIEF)}" if needs_total else line


def start(words: list[str], folder: Path) -> str:
    """Run a server until it answers; returns what it prints, with the default port and folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["env", "--default-signal=INT", f"XDG_STATE_HOME={folder}/.local/state", sys.executable, "-m", "tropism"]
    process = subprocess.Popen([*command, *words, "--port", f"{port}"], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    with urlopen(f"http://127.0.0.1:{port}/health") as reply:
        assert reply.status == 200
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    return line.strip().replace(str(port), "8000").replace(str(folder), "/home/me")
