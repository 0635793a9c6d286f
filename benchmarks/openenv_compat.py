"""Test OpenEnv's unchanged clients with our server, and our client with theirs; exit code 1 if one fails."""

import json
import subprocess
import sys
from importlib import import_module
from typing import Any

from benchmarks.peers import ROOT, UnavailableError, python_of
from benchmarks.served import both_servers

WORKER = ROOT / "benchmarks" / "workers" / "openenv_client.py"


def theirs_on_ours(url: str) -> dict[str, str]:
    """'ok' or the error of each check with OpenEnv's clients."""
    done = subprocess.run([python_of("openenv"), str(WORKER), url], capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"all": done.stderr.strip()[-500:]}


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


def main() -> None:
    try:
        with both_servers() as (ours, theirs):
            base = f"http://127.0.0.1:{ours.port}"
            results = {url: theirs_on_ours(url) for url in (base, f"{base}/envs/Echo-v0")}
            results["OpenEnv's server"] = ours_on_theirs(f"http://127.0.0.1:{theirs.port}")
    except UnavailableError as error:
        sys.exit(str(error))
    for place, checks in results.items():
        for name, outcome in checks.items():
            print(f"{name:24} {place.replace(base, '') or '/':18} {outcome}")
    sys.exit(0 if all(outcome == "ok" for checks in results.values() for outcome in checks.values()) else 1)


if __name__ == "__main__":
    main()
