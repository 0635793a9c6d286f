"""RLlib trains on our ids, in an environment of its own, where torch takes gigabytes."""

import os
import subprocess
from pathlib import Path

import pytest
from benchmarks.peers import UnavailableError, python_of

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_rllib_trains() -> None:
    try:
        python = python_of("rllib")
    except UnavailableError as error:
        pytest.skip(f"RLlib cannot be installed: {error}")
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [python, str(ROOT / "examples" / "rllib_train.py")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mean return" in done.stdout
