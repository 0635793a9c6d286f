"""Fill `.carry/` with the packages that `benchmarks.device` needs on a machine that has JAX but cannot install any."""

import shutil
import subprocess
import sys

from benchmarks.peers import ROOT, uv

CARRY = ROOT / ".carry"

REQUIREMENTS = (
    "equinox",
    "wadler-lindig",
    "gymnax==1.0.1",
    # Imported by gymnax for CartPole; installed without their own dependencies.
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

# Some environments of gymnax import plotting libraries at the top; the benchmark plots nothing.
STUB_FILES = ("matplotlib/__init__.py", "matplotlib/pyplot.py", "seaborn/__init__.py")

STUB = '''"""Stands in for a plotting library that gymnax imports and CartPole does not use."""


def __getattr__(name):
    return None
'''


def main() -> None:
    """Install the packages for the target Python version, without dependencies and so without JAX and NumPy."""
    python = sys.argv[1] if len(sys.argv) > 1 else "3.12"
    shutil.rmtree(CARRY, ignore_errors=True)
    options = ["--quiet", "--target", str(CARRY), "--no-deps", "--python-version", python, "--only-binary", ":all:"]
    subprocess.run([uv(), "pip", "install", *options, *REQUIREMENTS], check=True)
    for name in STUB_FILES:
        path = CARRY / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(STUB)
    size = sum(path.stat().st_size for path in CARRY.rglob("*") if path.is_file())
    print(f".carry: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
