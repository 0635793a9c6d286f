"""Commands and imports report in one line how to install a missing extra."""

import json
import subprocess
import sys

import pytest

# Which module is missing, the command, and the extra that its message must name.
COMMANDS = [
    ("optax", "train CartPole-v1", "train"),
    ("matplotlib", "evaluate CartPole-v1", "train"),
    ("websockets", "evaluate CartPole-v1", "train"),
    ("optax", "demo", "train"),
    ("uvicorn", "serve Echo-v0", "serve"),
    ("pyarrow", "serve Echo-v0 --record recordings", "record"),
    ("uvicorn", "mcp Echo-v0", "serve"),
    ("pyarrow", "record CartPole-v1 -o recordings", "record"),
    ("minari", "minari export recordings tropism/cartpole-v0", "minari"),
    ("imageio_ffmpeg", "render CartPole-v1 -o film.mp4", "video"),
    ("tensorboardX", "train CartPole-v1 --tensorboard -o trained", "tensorboard"),
    ("PIL", "list", "cli"),
    ("ray", "evaluate CartPole-v1 --on ray", "ray"),
]
IMPORTS = [
    ("gymnasium", "import tropism.gym", "gym"),
    ("msgspec", "from tropism.client import Client", "client"),
    ("uvicorn", "import tropism.serve.app", "serve"),
    ("optax", "import tropism.train.run", "train"),
    ("pyarrow", "import tropism.record", "record"),
    ("minari", "from tropism.gym import to_minari", "minari"),
    ("pyarrow", "from tropism.gym import Recording", "record"),
    ("websockets", "from tropism.gym import RemoteVectorEnv", "client"),
    ("ray", "from tropism.scale import RayVectorEnv", "ray"),
]


OPTIONAL = ["gymnasium", "optax", "msgspec", "pyarrow", "uvicorn", "minari", "matplotlib"]

# Runs each case in one process, so that JAX is loaded once: hides a module, forgets ours, and collects what is printed.
RUNNER = """
import contextlib, io, json, sys, traceback

def outcome(module, code):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tropism", module)]:
        del sys.modules[name]
    sys.modules[module] = None
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(code, {"sys": sys})
        except SystemExit as ended:
            status = ended.code
        except ImportError as error:
            status = f"{type(error).__name__}: {error}"
    del sys.modules[module]
    return status, out.getvalue(), err.getvalue()

json.dump([outcome(*case) for case in json.load(sys.stdin)], sys.stdout)
"""


def outcomes(cases: list[tuple[str, str]]) -> list[tuple[int | str, str, str]]:
    """For each (missing module, code): exit status or error, standard output, standard error."""
    run = subprocess.run([sys.executable, "-c", RUNNER], input=json.dumps(cases), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def command(line: str) -> str:
    return f"sys.argv = ['tropism', *{line.split()!r}]; from tropism.__main__ import main; main()"


def test_commands_report_the_missing_extra_in_one_line() -> None:
    results = outcomes([(module, command(line)) for module, line, _ in COMMANDS])
    for (module, line, extra), (status, _, error) in zip(COMMANDS, results, strict=True):
        assert (status, len(error.splitlines())) == (2, 1), (line, error)
        assert error.rstrip().endswith(f' needs {module}: pip install "tropism[{extra}]"'), line


def test_imports_report_the_missing_extra() -> None:
    results = outcomes([(module, statement) for module, statement, _ in IMPORTS])
    for (module, statement, extra), (status, _, _) in zip(IMPORTS, results, strict=True):
        assert str(status).startswith("MissingExtraError: "), statement
        assert str(status).endswith(f' needs {module}: pip install "tropism[{extra}]"'), statement


@pytest.mark.slow
def test_commands_that_do_not_need_an_extra_run_without_it() -> None:
    for module, (status, out, error) in zip(
        OPTIONAL, outcomes([(module, command("show CartPole-v1")) for module in OPTIONAL]), strict=True
    ):
        assert status == 0, (module, error)
        assert "Reward: 1 for every step." in out
