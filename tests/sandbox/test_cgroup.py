"""Control groups: workers are in one where one can be made, in both versions."""

import os
import signal
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.sandbox.specs import every_tier, spec_or_skip

from tropism.errors import SandboxError
from tropism.sandbox import cgroup
from tropism.sandbox.cgroup import PREFIX, ControlGroup
from tropism.sandbox.limits import MEBIBYTE
from tropism.sandbox.monitor import MAX_PAGE_TABLES
from tropism.sandbox.pool import Pool, Tier
from tropism.sandbox.process import WorkerRequest

LIMIT_FILES = ("memory.limit_in_bytes", "memory.max")
START_THREADS = b"""<code>\0
import threading, time
threading.stack_size(65536)
started = 0
try:
    for _ in range(60):
        threading.Thread(target=time.sleep, args=(0.3,), daemon=True).start()
        started += 1
except RuntimeError as error: print(started + 1, error)
"""


def can_make_groups() -> bool:
    try:
        ControlGroup(2**26, 8).remove()
    except SandboxError:
        return False
    return True


needs_groups = pytest.mark.skipif(not can_make_groups(), reason="no control group can be made here")


@needs_groups
@every_tier
def test_a_worker_is_in_a_group_of_its_own(tier: Tier):
    spec = spec_or_skip(tier)
    pool = Pool(spec, spares=0)
    worker = pool.take()
    [group] = worker._groups  # pyright: ignore[reportPrivateUsage]
    folders = group._folders  # pyright: ignore[reportPrivateUsage]
    assert worker.pid in group.processes()
    assert os.getpid() not in group.processes()
    memory = next(folder / name for folder in folders for name in LIMIT_FILES if (folder / name).exists())
    assert int(memory.read_text()) == spec.limits.memory + spec.limits.files + MAX_PAGE_TABLES
    worker.end()
    assert not any(folder.exists() for folder in folders)
    pool.close()


@needs_groups
@every_tier
def test_the_kernel_limits_the_threads_of_a_worker(tier: Tier):
    spec = spec_or_skip(tier, threads=8)
    pool = Pool(spec, spares=0)
    worker = pool.take()
    request = WorkerRequest.start(spec.limits)
    assert worker.send_request(b"P", START_THREADS, request).kind == b"D"
    started = int(request.out.data.split()[0])
    assert spec.limits.threads - 1 <= started <= spec.limits.threads
    worker.end()
    pool.close()


@needs_groups
def test_a_group_reports_that_it_ran_out_of_memory():
    pool = Pool(spec_or_skip("A"), spares=0)
    worker = pool.take()
    [group] = worker._groups  # pyright: ignore[reportPrivateUsage]
    for folder in group._folders:  # pyright: ignore[reportPrivateUsage]
        for path in (folder / name for name in LIMIT_FILES if (folder / name).exists()):
            path.write_text(str(24 * MEBIBYTE))
    request = WorkerRequest.start(pool.spec.limits)
    assert worker.send_request(b"P", b"<code>\0x = b'x' * (64 << 20)", request).kind == b""
    assert request.exceeded == "memory"
    worker.end()
    pool.close()


@needs_groups
def test_processes_that_a_killed_server_has_left_are_killed_by_the_next_one():
    ended = subprocess.Popen(["true"])
    ended.wait()
    group = ControlGroup(2**26, 8)
    stale = [folder.with_name(f"{PREFIX}{ended.pid}-0") for folder in group._folders]  # pyright: ignore[reportPrivateUsage]
    group.remove()
    for folder in stale:
        folder.mkdir()
    with subprocess.Popen(["sleep", "60"]) as left:
        for folder in stale:
            (folder / "cgroup.procs").write_text(str(left.pid))
        cgroup._find_parents.cache_clear()  # pyright: ignore[reportPrivateUsage]
        ControlGroup(2**26, 8).remove()
        assert left.wait(10) == -signal.SIGKILL
    assert not any(folder.exists() for folder in stale)


@every_tier
def test_workers_start_where_no_group_can_be_made(tier: Tier, monkeypatch: pytest.MonkeyPatch):
    def unavailable() -> None:
        raise cgroup._unavailable("read-only file system")  # pyright: ignore[reportPrivateUsage]

    spec = spec_or_skip(tier)
    monkeypatch.setattr(cgroup, "_find_parents", unavailable)
    pool = Pool(spec, spares=0)
    worker = pool.take()
    assert worker.send_request(b"P", b"<code>\0x = 1", WorkerRequest.start(spec.limits)).kind == b"D"
    worker.end()
    pool.close()


@pytest.mark.parametrize("delegated", ["", "memory pids\n"], ids=["not yet delegated", "delegated"])
def test_version_2_needs_only_files(delegated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A tree of plain files in place of the kernel's: which files are written is tested, not their effect."""
    own = tmp_path / "cgroup" / "service"
    own.mkdir(parents=True)
    (own / "cgroup.subtree_control").write_text(delegated)
    (tmp_path / "mountinfo").write_text(f"30 23 0:26 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cgroup.txt").write_text("0::/service\n")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "mountinfo").symlink_to(tmp_path / "mountinfo")
    (proc / "cgroup").symlink_to(tmp_path / "cgroup.txt")
    monkeypatch.setattr(cgroup, "OWN", proc)
    cgroup._find_parents.cache_clear()  # pyright: ignore[reportPrivateUsage]
    try:
        group = ControlGroup(2**26, 8, yields=False)
    finally:
        cgroup._find_parents.cache_clear()  # pyright: ignore[reportPrivateUsage]
    [folder] = own.glob(f"{PREFIX}*")
    assert (own / "cgroup.subtree_control").read_text() == (delegated or "+memory +pids")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"memory.max": str(2**26), "pids.max": "8"}
    group.add(123)
    assert group.processes() == {123}
    (folder / "memory.events").write_text("oom 2\noom_kill 0\n")
    assert not group.ran_out_of_memory()
    (folder / "memory.events").write_text("oom 2\noom_kill 1\n")
    assert group.ran_out_of_memory()


def find_version_2() -> tuple[Path, set[str]]:
    """Where version 2 is mounted, and its controllers; skips the test if there is none that this process may change."""
    mounts = cgroup.MOUNT.findall(Path("/proc/self/mountinfo").read_text())
    mount = next((Path(path) for path, kind, _ in mounts if kind == "cgroup2"), None)
    if mount is None or not os.access(mount / "cgroup.subtree_control", os.W_OK):
        pytest.skip("control groups of version 2 are not mounted, or this process may not change them")
    return mount, set((mount / "cgroup.controllers").read_text().split())


@pytest.fixture
def version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A group of the kernel's version 2, as if it were this process's. Where its controllers of memory and processes
    are in use by version 1, another one takes their place: then groups are real, but not their limits."""
    mount, available = find_version_2()
    if not set(cgroup.CONTROLLERS) <= available:
        if "hugetlb" not in available:
            pytest.skip(f"version 1 has the controllers of memory and processes; version 2 has only {available}")
        monkeypatch.setattr(cgroup, "CONTROLLERS", ("hugetlb",))
        monkeypatch.setattr(cgroup, "VERSION_2", {"hugetlb": ("hugetlb.2MB.max",)})
        monkeypatch.setattr(cgroup, "CPU_WEIGHTS", {"hugetlb.2MB.max": "0"})
    enabled = (mount / "cgroup.subtree_control").read_text()
    own = mount / f"test-{os.getpid()}"
    own.mkdir()
    (tmp_path / "mountinfo").write_text(f"30 23 0:26 / {mount} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cgroup").write_text(f"0::/{own.name}\n")
    monkeypatch.setattr(cgroup, "OWN", tmp_path)
    cgroup._find_parents.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield own
    cgroup._find_parents.cache_clear()  # pyright: ignore[reportPrivateUsage]
    own.rmdir()
    for name in set((mount / "cgroup.subtree_control").read_text().split()) - set(enabled.split()):
        (mount / "cgroup.subtree_control").write_text(f"-{name}")


@pytest.mark.parametrize("occupied", [False, True], ids=["own group", "group above"])
def test_groups_of_version_2_are_made_in_the_kernel(version_2: Path, occupied: bool):
    """A group with processes cannot have children with limits, so they are made in the one above."""
    above = version_2.parent
    if not occupied:
        (above / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in cgroup.CONTROLLERS))
    with subprocess.Popen(["sleep", "60"]) as server, subprocess.Popen(["sleep", "60"]) as worker:
        if occupied:
            (version_2 / "cgroup.procs").write_text(str(server.pid))
        group = ControlGroup(2**26, 8, yields=False)
        [folder] = above.glob(f"{PREFIX}{os.getpid()}-*") if occupied else version_2.glob(f"{PREFIX}*")
        files = [folder / file for controller in cgroup.CONTROLLERS for file in cgroup.VERSION_2[controller]]
        limits = {file.name: file.read_text().strip() for file in files}
        assert limits in ({"hugetlb.2MB.max": "0"}, {"memory.max": str(2**26), "pids.max": "8"})
        group.add(worker.pid)
        assert group.processes() == {worker.pid}
        for process in (server, worker):
            process.kill()
            process.wait()
        group.remove()
    assert not folder.exists()
