"""Test unchanged clients and trainers with our server, and our client with OpenEnv's; exit code 1 if one fails.

With --docs the table in docs/serve.md is written.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks.peers import REQUIREMENTS, ROOT, UnavailableError, as_ours, python_of
from benchmarks.served import both_servers, free_port, running

DOCS = ROOT / "docs" / "serve.md"
PLACE = re.compile(r"(<!-- clients -->\n).*?(<!-- end -->)", re.DOTALL)
CLIENT = tuple(as_ours(package) for package in ("msgspec", "websockets"))
SERVER = ("jax", "equinox", "jaxtyping", "numpy", "wadler-lindig", "uvicorn")
UNPINNED = ("uvloop", "httptools", "typer", "rich", "pillow")  # OpenEnv's other dependencies limit their versions
OPENENV = "openenv==0.10.0"
CLIENTS = ROOT / "benchmarks" / "clients"
REQUIREMENTS |= {
    "mcp-1": ("mcp==1.30.0",),
    "mcp-2": (as_ours("mcp"),),
    "verifiers": ("verifiers==0.4.0", "openenv==0.4.1"),  # later versions exclude each other
    "verifiers-openenv": ("verifiers==0.4.0", OPENENV, "--override", f"{CLIENTS}/verifiers_overrides.txt"),
    "openenv-tropism": (OPENENV, "requests==2.32.5", *CLIENT, *UNPINNED, *map(as_ours, SERVER)),
    "transformers": ("transformers==5.22.2", "jinja2==3.1.6", *CLIENT),
}


@dataclass(frozen=True)
class Worker:
    """A script that checks a server, and the peer in whose virtual environment it runs."""

    peer: str
    script: str
    path: str = ""  # below the server's address
    skips: tuple[str, ...] = ()  # checks that cannot run on this machine


def workers(skips: tuple[str, ...]) -> list[Worker]:
    scripts = "benchmarks/clients"
    return [
        Worker("openenv", f"{scripts}/openenv_client.py"),
        Worker("openenv", f"{scripts}/openenv_client.py", "/envs/Echo-v0"),
        Worker("openenv", f"{scripts}/openenv_typed.py", skips=skips),
        Worker("openenv", f"{scripts}/openenv_graders.py"),
        Worker("openenv", f"{scripts}/openenv_resume.py"),
        Worker("openenv-tropism", f"{scripts}/openenv_package.py"),
        Worker("openenv-tropism", "examples/openenv_class.py"),
        Worker("mcp-1", f"{scripts}/mcp_client.py"),
        Worker("mcp-2", f"{scripts}/mcp_client.py"),
        Worker("verifiers", f"{scripts}/verifiers_client.py"),
        Worker("verifiers-openenv", f"{scripts}/verifiers_client.py"),
        Worker("verifiers", "examples/verifiers_eval.py"),
        Worker("transformers", f"{scripts}/trl_driver.py"),
    ]


def check(worker: Worker, url: str) -> dict[str, str]:
    """'ok' or the error of each check; an example is one check."""
    ours = {"PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu", "TROPISM_PYTHON": sys.executable}
    environment = {**os.environ, **ours}
    command = [python_of(worker.peer), str(ROOT / worker.script), url + worker.path, *worker.skips]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode or worker.script.startswith("examples/"):
        return {worker.script: "ok" if done.returncode == 0 else done.stderr.strip()[-500:]}
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def our_server() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The address of a server with the environments that the workers play, and the checks to skip."""
    unavailable = import_module("tropism.core.registry").unavailable_reasons()
    coding = [] if "Coding-v0" in unavailable else ["Coding-v0"]
    port = free_port()
    ids = ["Echo-v0", "ConnectFour-v0", "GridWorld-v0", *coding, "benchmarks.clients.bytes_chat:BytesChat"]
    with running("tropism", [sys.executable, "-m", "tropism", "serve", *ids, "--port", str(port)], port, ""):
        yield f"http://127.0.0.1:{port}", () if coding else ("typed client, Coding",)


def ours_on_theirs(url: str) -> dict[str, str]:
    client: Any = import_module("tropism.client").Client
    errors: Any = import_module("tropism.errors")
    with client(url) as one, client(url) as other:
        one.reset(seed=1, episode_id="ep-1")
        other.reset()
        result = one.step({"message": "hello"})
        found = (result.observation["echoed_message"], result.reward, result.done, result.metadata)
        if found != ("hello", 0.5, False, {"step": 1}):
            return {"tropism.client": f"a step gave {result}"}
        if (one.state().step_count, other.state().step_count, one.state().episode_id) != (1, 0, "ep-1"):
            return {"tropism.client": f"the states are {one.state()} and {other.state()}"}
        try:
            one.step({"message": 3})
        except errors.ValidationError:
            return {"tropism.client": "ok"}
        return {"tropism.client": "an invalid action was accepted"}


def results() -> dict[tuple[str, str], str]:
    """The outcome of each check, by its name and the place where it was made."""
    found: dict[tuple[str, str], str] = {}
    with our_server() as (url, skips):
        for worker in workers(skips):
            found |= {(name, worker.path or "/"): outcome for name, outcome in check(worker, url).items()}
    with both_servers() as (_, theirs):
        checks = ours_on_theirs(f"http://127.0.0.1:{theirs.port}")
        found |= {(name, "OpenEnv's server"): outcome for name, outcome in checks.items()}
    return found


def table(found: dict[tuple[str, str], str]) -> str:
    rows = [f"| {name} | {place} | {outcome} |" for (name, place), outcome in found.items()]
    return "\n".join(["| client | at | outcome |", "| --- | --- | --- |", *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write the table in docs/serve.md")
    write = parser.parse_args().docs
    try:
        found = results()
    except UnavailableError as error:
        sys.exit(str(error))
    print(table(found), end="")
    passed = all(outcome == "ok" for outcome in found.values())
    if write and passed:
        DOCS.write_text(PLACE.sub(lambda place: place[1] + table(found) + place[2], DOCS.read_text()))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
