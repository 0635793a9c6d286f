"""Run check_env of several Gymnasium versions and of Stable-Baselines3 on every registered id and the plume classes."""

import argparse
import json
import os
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.peers import REQUIREMENTS, ROOT, UnavailableError, as_ours, python_of, reason

VERSIONS = ("0.29.1", "1.0.0", "newest")
OURS = tuple(as_ours(package) for package in ("jax", "equinox", "jaxtyping", "numpy", "pygame"))
SB3 = ("stable-baselines3", *OURS)


def requirement(gymnasium: str) -> str:
    return "gymnasium" if gymnasium == "newest" else f"gymnasium=={gymnasium}"


def sb3_python() -> str:
    """The interpreter with Stable-Baselines3, installed with pip so that a local build of torch is found."""
    folder = ROOT / ".peers" / "stable-baselines3"
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.exists():
        print("installing stable-baselines3 into .peers/", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *SB3]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(reason(done.stderr))
        installed.write_text("\n".join(SB3))
    return str(python)


def interpreter(column: str) -> str:
    if column == "sb3":
        return sb3_python()
    name = f"gymnasium-{column}"
    REQUIREMENTS[name] = (requirement(column), *OURS)
    return python_of(name)


def run_column(column: str) -> tuple[str, dict[str, str]]:
    """The installed version, and 'ok' or the error of each id."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    variables = {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "SDL_VIDEODRIVER": "dummy"}
    command = [interpreter(column), "-m", "benchmarks.compat", "--here", column]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["stopped"]
        raise UnavailableError(lines[-1])
    reply = json.loads(done.stdout.splitlines()[-1])
    return reply["version"], reply["ids"]


def check_here(column: str) -> dict[str, Any]:
    """Check every id; runs in the interpreter of one column."""
    warnings.simplefilter("ignore")  # advice about unbounded boxes and the like
    gymnasium: Any = import_module("gymnasium")
    checker = "stable_baselines3.common.env_checker" if column == "sb3" else "gymnasium.utils.env_checker"
    check_env: Any = import_module(checker).check_env
    ours: Any = import_module("tropism.gym")
    registered: Any = import_module("tropism").registered
    envs = {spec.id: gymnasium.make(f"tropism/{spec.id}").unwrapped for spec in registered()}
    if column == "sb3":  # its check rejects text spaces
        envs = {id: env for id, env in envs.items() if env.session.env.pure}
    ids = {id: verdict(check_env, env) for id, env in envs.items()}
    ids |= {f"{kind.__name__}()": verdict(check_env, kind()) for kind in (ours.PlumeEnv, ours.PlumeSearchEnv)}
    library = "stable-baselines3" if column == "sb3" else "gymnasium"
    return {"version": f"{library} {version(library)}", "ids": ids}


def verdict(check_env: Any, env: Any) -> str:
    try:
        check_env(env)
    except Exception as error:  # noqa: BLE001 - any error is the result
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "ok"


def report(columns: list[str]) -> bool:
    """Print a table of ids and versions; return whether everything is ok."""
    results = dict(run_column(column) for column in columns)
    ids = next(iter(results.values()))
    width = max(map(len, ids))
    print(" " * width, *results, sep="  ")
    for id in ids:
        marks = [{"ok": "ok", None: "-"}.get(outcomes.get(id), "failed") for outcomes in results.values()]
        print(id.ljust(width), *(mark.ljust(len(name)) for mark, name in zip(marks, results, strict=True)), sep="  ")
    failures = [(name, id, outcome) for name, ids in results.items() for id, outcome in ids.items() if outcome != "ok"]
    for name, id, outcome in failures:
        print(f"{id} under {name}: {outcome}")
    return not failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sb3", action="store_true", help="also run Stable-Baselines3's check, which needs torch")
    parser.add_argument("--versions", nargs="+", default=VERSIONS, metavar="VERSION", help="versions of Gymnasium")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(check_here(args.here)))
        return
    try:
        everything_ok = report([*args.versions, *(["sb3"] if args.sb3 else [])])
    except UnavailableError as error:
        sys.exit(str(error))
    sys.exit(0 if everything_ok else 1)


if __name__ == "__main__":
    main()
