"""The other libraries, each installed into its own virtual environment under `.peers/`."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def as_ours(package: str) -> str:
    """A requirement for the version installed here, so that both sides use the same one."""
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
    "rllib": (f"ray[rllib]{as_ours('ray').removeprefix('ray')}", "torch", as_ours("jax"), "equinox", "jaxtyping"),
    "podman-compose": ("podman-compose==1.6.0",),
    "plume_nav_sim": ("plume-nav-sim==0.1.0", as_ours("gymnasium"), as_ours("numpy")),
}


class UnavailableError(Exception):
    """A library could not be installed, or its worker stopped; the message is the reason."""


def uv() -> str:
    """The path of uv: on PATH, where `make` installs it, or in `.uv/`, where it is installed if missing."""
    local = ROOT / ".uv" / "bin" / "uv"
    made = ROOT / "build" / "uv" / "bin" / "uv"
    for candidate in (shutil.which("uv"), local, made):
        if candidate and Path(candidate).exists():
            return str(candidate)
    subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".uv")], check=True)
    subprocess.run([str(local.with_name("pip")), "install", "--quiet", "uv"], check=True)
    return str(local)


def reason(output: str) -> str:
    """The last error line of an installer's output, unless it contains a path or an address."""
    errors = [line.strip() for line in output.splitlines() if re.match(r"\s*[\w.]*(Error|error)\b.*:", line)]
    return errors[-1] if errors and "/" not in errors[-1] else "its installation failed"


def python_of(peer: str) -> str:
    """The interpreter of a peer's virtual environment, which is created on first use."""
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
