"""The other libraries, each installed into an environment of its own under `.peers/`."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def as_ours(package: str) -> str:
    """The requirement of the version that we run with, so that both sides stand on the same ground."""
    try:
        return f"{package}=={version(package)}"
    except PackageNotFoundError:
        return package


REQUIREMENTS = {
    # gymnax 1.0.1 imports six without declaring it.
    "gymnax": ("gymnax==1.0.1", "six==1.17.0", as_ours("jax")),
    "gymnasium": (as_ours("gymnasium"), as_ours("numpy")),
    "envpool": ("envpool==1.2.5",),
    "pufferlib": ("pufferlib==3.0.0",),
    "plume_nav_sim": ("plume-nav-sim==0.1.0", as_ours("gymnasium"), as_ours("numpy")),
}


class UnavailableError(Exception):
    """A library that cannot be installed, or that stopped; the message says why."""


def uv() -> str:
    """uv from the path, from where `make` puts it, or from `.uv/`, where it is installed when missing."""
    local = ROOT / ".uv" / "bin" / "uv"
    made = ROOT / "build" / "uv" / "bin" / "uv"
    for candidate in (shutil.which("uv"), local, made):
        if candidate and Path(candidate).exists():
            return str(candidate)
    subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".uv")], check=True)
    subprocess.run([str(local.with_name("pip")), "install", "--quiet", "uv"], check=True)
    return str(local)


def reason(output: str) -> str:
    """The last line of an installer's output that names an error, without the addresses and paths around it."""
    errors = [line.strip() for line in output.splitlines() if re.match(r"\s*[\w.]*(Error|error)\b.*:", line)]
    return errors[-1] if errors and "/" not in errors[-1] else "its installation failed"


def python_of(peer: str) -> str:
    """The interpreter of a peer's environment, which is made and filled the first time."""
    folder = ROOT / ".peers" / peer
    wanted = "\n".join(REQUIREMENTS[peer])
    installed, failed = folder / "installed.txt", folder / "failed.txt"
    python = folder / "bin" / "python"
    if installed.exists() and installed.read_text() == wanted:
        return str(python)
    if failed.exists():
        print(f"{peer} failed to install before; delete .peers/{peer}/failed.txt to try again", file=sys.stderr)
        raise UnavailableError(failed.read_text())
    print(f"installing {peer} into .peers/{peer}", file=sys.stderr)
    subprocess.run([uv(), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    install = [uv(), "pip", "install", "--quiet", "--python", str(python), *REQUIREMENTS[peer]]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        failed.write_text(reason(done.stderr))
        raise UnavailableError(reason(done.stderr))
    installed.write_text(wanted)
    return str(python)
