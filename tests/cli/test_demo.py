"""An interrupted demo keeps and reports its results so far."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tropism.core.registry import make
from tropism.train.policies import resolve_policy


@pytest.mark.slow
def test_ctrl_c_keeps_a_report_and_an_agent(tmp_path: Path) -> None:
    # What runs in the background of a shell ignores Ctrl-C, and so would its children.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tropism", "demo", "--out", str(tmp_path)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240
    while not (tmp_path / "agent.tropism").exists():
        assert demo.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    demo.send_signal(signal.SIGINT)
    out, errors = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "Interrupted" in errors
    assert "one to two minutes" in errors.splitlines()[0]
    assert "Traceback" not in out + errors
    report = (tmp_path / "report.html").read_text()
    assert "cast-and-surge" in report
    assert "interrupted" in report
    resolve_policy(str(tmp_path), *make("PlumeNavPuffs-v0", difficulty="sparse"))  # the agent so far can be used
