"""Filling `.carry/` with what `benchmarks.device` needs on a machine that has JAX and can install nothing."""

import shutil
import subprocess
import sys

from benchmarks.peers import ROOT, uv

CARRY = ROOT / ".carry"

REQUIREMENTS = (
    "equinox",
    "wadler-lindig",
    "gymnax==1.0.1",
    # What gymnax imports on the way to CartPole, without what those in turn declare.
    "gymnasium<1.4",
    "cloudpickle",
    "farama-notifications",
    "typing-extensions",
    "flax",
    "absl-py",
    "msgpack",
    "pyyaml",
    "rich",
    "six",
)

# gymnax imports its plotting at the top of some environments; nothing is plotted here.
STAND_INS = ("matplotlib/__init__.py", "matplotlib/pyplot.py", "seaborn/__init__.py")

STAND_IN = '''"""Stands in for a plotting library that gymnax imports and CartPole does not use."""


def __getattr__(name):
    return None
'''


def main() -> None:
    """Ask uv for the packages as Python 3.12 would get them: without dependencies, so without JAX and NumPy."""
    python = sys.argv[1] if len(sys.argv) > 1 else "3.12"
    shutil.rmtree(CARRY, ignore_errors=True)
    options = ["--quiet", "--target", str(CARRY), "--no-deps", "--python-version", python, "--only-binary", ":all:"]
    subprocess.run([uv(), "pip", "install", *options, *REQUIREMENTS], check=True)
    for name in STAND_INS:
        path = CARRY / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(STAND_IN)
    size = sum(path.stat().st_size for path in CARRY.rglob("*") if path.is_file())
    print(f".carry: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
