"""Containers with podman and runc, from a base image made of this machine's own files: no registry is needed."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE, IMAGE = "docker.io/library/python:3.11-slim", "localhost/tropism-test:latest"
PROGRAMS = ("sh", "bash", "env", "rm", "install", "id", "cat", "mkdir", "sleep", "ls")
LIBRARIES = ("libgcc_s", "libstdc++", "libm", "libdl", "libpthread", "librt", "libutil")  # of compiled packages
UNUSED = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "__pycache__", "*.a", "*.pyc", "site-packages")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")


def engine() -> list[str]:
    """The podman command, with the runtime that works here; skips the test if there is none."""
    if shutil.which("podman") is None or shutil.which("runc") is None:
        pytest.skip("podman and runc are not installed (apt-get install podman runc)")
    if os.geteuid() != 0:
        pytest.skip("the tests run podman as root only")
    return ["podman", "--runtime", "runc"]


def podman(*arguments: str, timeout: float = 120.0) -> str:
    done = subprocess.run([*engine(), *arguments], capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def import_base() -> None:
    """Tag an image with Python, a shell and their libraries as the base of the Dockerfile."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for place in ("usr/bin", "usr/sbin", "tmp", "etc", "home", "root", "proc", "sys", "dev", "var"):
            (root / place).mkdir(parents=True)
        (root / "bin").symlink_to("usr/bin")
        programs = [shutil.which(name) for name in PROGRAMS] + ["/usr/sbin/useradd"]
        for program in programs:
            assert program is not None
            _copy(root, Path(program), root / "usr" / Path(program).parent.name / Path(program).name)
        _copy_python(root)
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\n")
        (root / "etc/login.defs").touch()
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists():
            (root / "etc/ssl/certs").mkdir(parents=True)
            shutil.copy(certificates, root / "etc/ssl/certs")
        archive = root.with_suffix(".tar")
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        try:
            podman("import", "--change", "ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin", str(archive), BASE)
        finally:
            archive.unlink()


def _copy_python(root: Path) -> None:
    """The interpreter in /usr/local, as in the official image, without packages other than pip."""
    home, version = Path(sys.base_prefix), f"python3.{sys.version_info.minor}"
    library = root / "usr/local/lib" / version
    shutil.copytree(home / "lib" / version, library, ignore=shutil.ignore_patterns(*UNUSED), symlinks=True)
    (root / "usr/local/bin").mkdir()
    real = (home / "bin" / version).resolve()
    _copy(root, real, root / "usr/local/bin" / version)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to(version)
    for shared in (home / "lib").glob("libpython3*.so*"):
        shutil.copy(shared, root / "usr/local/lib", follow_symlinks=False)
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = [line.split(" => ") for line in listed.splitlines() if "x86-64" in line or "AArch64" in line]
    for name, path in found:
        if name.strip().partition(".so")[0] in LIBRARIES:
            _copy_file(root, Path(path))
    for extension in (library / "lib-dynload").glob("*.so"):
        _copy_libraries(root, extension)
    pip = subprocess.run([sys.executable, "-c", "import pip; print(pip.__path__[0])"], capture_output=True, text=True)
    source = pip.stdout.strip() or str(next((home / "lib" / version / "site-packages").glob("pip")))
    shutil.copytree(source, library / "site-packages" / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    script = root / "usr/local/bin/pip"
    script.write_text('#!/usr/bin/sh\nexec python -m pip "$@"\n')
    script.chmod(0o755)


def _copy(root: Path, program: Path, target: Path) -> None:
    shutil.copy(program, target)
    _copy_libraries(root, program)


def _copy_libraries(root: Path, binary: Path) -> None:
    """Copy the shared libraries of a binary to the places where it expects them."""
    listed = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
    paths = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
    for path in paths:
        _copy_file(root, Path(path))


def _copy_file(root: Path, path: Path) -> None:
    target = root / path.relative_to("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def build_image() -> None:
    """Run the steps of the Dockerfile."""
    configuration = [f"--volume={path}:{path}:ro" for path in _pip_sources()]
    variables = [f"--env={name}={value}" for name, value in os.environ.items() if name.startswith("PIP_")]
    podman("build", "--network=host", *configuration, *variables, *LIMITS, "-t", IMAGE, str(ROOT), timeout=900)


def _pip_sources() -> list[str]:
    """Files and folders that this machine's pip reads packages and certificates from."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    words = listed.stdout.replace("file://", " ").replace("'", " ").split()
    return sorted({word for word in words if word.startswith("/") and Path(word).is_dir()})
