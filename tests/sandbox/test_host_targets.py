"""The targets of attacks: as root, nothing outside their folder can be changed through links in it."""

import fcntl
import os
import stat
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tropism.sandbox import host_targets
from tropism.sandbox.host_targets import NEW, SECRET, HostTargets, is_locked
from tropism.sandbox.launcher import WORKER_UID, Launcher, start_unprivileged
from tropism.sandbox.mounts import mounts_for


@pytest.fixture
def targets() -> Iterator[HostTargets]:
    created = HostTargets.create()
    yield created
    created.close()


def test_only_the_server_and_its_workers_can_write_to_the_folders(targets: HostTargets):
    owner = WORKER_UID if os.geteuid() == 0 else os.geteuid()
    outer, inner = os.stat(targets.outer), os.stat(targets.folder)
    assert (outer.st_uid, stat.S_IMODE(outer.st_mode)) == (os.geteuid(), 0o711)
    assert (inner.st_uid, stat.S_IMODE(inner.st_mode)) == (owner, 0o700)


@pytest.mark.parametrize("name", [SECRET, NEW])
def test_links_are_replaced_and_not_followed(targets: HostTargets, name: str, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    before = victim.stat()
    path = os.path.join(targets.folder, name)
    if name == SECRET:
        os.unlink(path)
    os.symlink(victim, path)
    assert targets.file_changed() is (name == SECRET)
    targets.restore()
    assert not os.path.islink(path)
    after = victim.stat()
    assert (after.st_uid, after.st_mode, after.st_mtime_ns) == (before.st_uid, before.st_mode, before.st_mtime_ns)
    assert victim.read_text() == "precious"


RACE = """
import itertools, os, sys
folder, victim = sys.argv[1:]
os.chdir(folder)
os.write(1, b"x")
for number in itertools.count():
    for name in ("secret", "new"):
        try:
            os.symlink(victim, f"link-{number}")
            os.rename(f"link-{number}", name)
            if number % 2: os.unlink(name)
        except OSError: continue
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the files of others")
def test_a_process_of_the_workers_that_races_for_links_changes_nothing_of_root(targets: HostTargets, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    before = victim.stat()
    mounts = mounts_for(())
    launcher = Launcher(mounts.readable)
    command = [mounts.interpreter, "-S", "-c", RACE, targets.folder, str(victim)]
    racer = launcher.run(lambda: start_unprivileged(command, output=subprocess.PIPE))
    assert racer.stdout.read(1) == b"x"
    ends, lost = time.monotonic() + 1, 0
    while time.monotonic() < ends:
        try:
            targets.restore()
        except OSError:  # the other process was faster
            lost += 1
        targets.file_changed()
    racer.kill()
    racer.communicate()
    launcher.close()
    after = victim.stat()
    assert lost > 0
    assert (after.st_uid, after.st_mode, after.st_mtime_ns) == (before.st_uid, before.st_mode, before.st_mtime_ns)
    assert victim.read_text() == "precious"


@pytest.mark.skipif(not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="this Python has no shared library")
def test_the_decoy_runs_with_the_library_of_the_server_even_in_a_folder_of_root(targets: HostTargets):
    maps = Path(f"/proc/{targets.decoy.pid}/maps").read_text()
    library = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    assert str(library.resolve()) in maps


def test_a_folder_replaced_by_a_link_is_not_followed(targets: HostTargets, tmp_path: Path):
    os.rename(targets.folder, f"{targets.folder}-moved")
    os.symlink(tmp_path, targets.folder)
    targets.restore()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_appears_again_stops_the_examination(targets: HostTargets, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "unlink", lambda name, dir_fd: None)
    with pytest.raises(FileExistsError):
        targets.restore()


def test_only_locks_that_exclude_others_are_detected(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("x")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as another server that examines its sandbox does
        assert not is_locked(str(path))
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_locked(str(path))


def test_a_decoy_that_does_not_start_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host_targets, "DECOY", "")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="did not start"):
        HostTargets.create()
    assert os.listdir("/proc/self/fd") == before
