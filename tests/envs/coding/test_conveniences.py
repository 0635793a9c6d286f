"""What agents expect of Coding-v0, through sessions, clients and the command line."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from tests.serve.running import process

from tropism import Session, make
from tropism.client import Client
from tropism.envs.coding.coding import Coding
from tropism.sandbox.pool import unavailable_reason

REASON = Coding.unavailable_reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
MANY_THREADS = """
import threading, time
for _ in range(60): threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
"""
PLOT = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot([1, 2, 4])
plt.savefig("plot.png")
"""


@pytest.fixture(scope="module")
def coding() -> Iterator[Session]:
    with Session(*make("Coding-v0")) as session:
        yield session


def run(coding: Session, code: str) -> Any:
    coding.reset(seed=0)
    return coding.step({"code": code}).obs


def test_await_is_allowed_at_the_top_level(coding: Session):
    obs = run(coding, "import asyncio\nasync def double(x): return 2 * x\nawait double(21)")
    assert (obs.stdout, obs.stderr, obs.exit_code) == ("42\n", "", 0)


def test_help_is_printed(coding: Session):
    obs = run(coding, "def area(r):\n    '''The area of a disc.'''\nhelp(area)")
    assert ("area(r)" in obs.stdout, "The area of a disc." in obs.stdout, obs.exit_code) == (True, True, 0)


def test_too_many_threads_are_explained(coding: Session):
    obs = run(coding, MANY_THREADS)
    line = obs.stderr.splitlines()[-1]
    assert line.startswith("[sandbox] ")
    assert line.removeprefix("[sandbox] ") in (
        "the limit is 32 threads",
        "the step was stopped because it had more than 32 threads; all variables are lost",
    )


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_a_plot_can_be_drawn_and_read():
    reason = unavailable_reason("A")
    if reason is not None:
        pytest.skip(reason)
    with Session(*make("Coding-v0", packages="matplotlib", tier="A", wall=60, cpu=60)) as coding:
        coding.reset(seed=0)
        obs = coding.step({"code": PLOT}).obs
        assert (obs.exit_code, obs.lost) == (0, False), obs.stderr
        assert coding.read_file("plot.png").startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("scipy") is None, reason="SciPy is not installed")
def test_packages_are_named_on_the_command_line():
    arguments = ["serve", "Coding-v0", "--port", "0", "--arg", "packages=numpy,scipy", "--arg", "wall=60"]
    arguments += ["--arg", "cpu=60"]
    with process("-m", "tropism", *arguments) as (_, url), Client(url) as client:
        client.reset(seed=0)
        obs: Any = client.step({"code": "import numpy, scipy.special; print(scipy.special.factorial(4))"}).observation
        assert (obs.stdout, obs.stderr) == ("24.0\n", "")
        explained = client.step({"code": "import jax"}).observation.stderr.splitlines()[-1]
        assert explained == "[sandbox] packages that can be imported beside the standard library: numpy, scipy"
