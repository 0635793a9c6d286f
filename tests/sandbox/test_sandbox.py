"""Running code in a sandbox: its results, failures and limits, and that sandboxes do not affect each other."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.specs import every_tier, spec_or_skip

from tropism.errors import SandboxError, StateError, ValidationError
from tropism.sandbox import launcher
from tropism.sandbox.limits import MEBIBYTE, Limits
from tropism.sandbox.mounts import mounts_for
from tropism.sandbox.pool import Pool, SandboxSpec, Tier, shared_pool, worker_source
from tropism.sandbox.sandbox import ExecutionResult, Sandbox

SHORT = Limits(wall=20, cpu=20, output=1000)
QUICK = Limits(wall=1.5, cpu=1.5, output=1000)


def run(tier: Tier, code: str, limits: Limits = SHORT) -> ExecutionResult:
    with Sandbox(spec_or_skip(tier)) as sandbox:
        return sandbox.run(code, limits)


@every_tier
def test_variables_persist_until_the_interpreter_ends(tier: Tier):
    with Sandbox(spec_or_skip(tier)) as sandbox:
        sandbox.run("x = 1\ndef f(): return x")
        assert sandbox.run("x += 1; print(f())").stdout == "2\n"
    with Sandbox(spec_or_skip(tier)) as sandbox:
        assert "NameError: name 'x'" in sandbox.run("print(x)").stderr


@every_tier
@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("", 0, ""),
        ("exit()", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("exit('bye')", 1, "bye\n"),
        ("1/0", 1, "ZeroDivisionError"),
        ("def f(:", 1, "SyntaxError"),
        ("\0", 1, "null bytes"),
        ("'\ud800'; x = '\ud800'; print(x)", 1, "surrogates not allowed"),
        ("input()", 1, "EOFError"),
        ("def f(): f()\nf()", 1, "RecursionError"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("x = bytearray(4 << 30)", 1, "MemoryError"),
        ("import tropism", 1, "No module named 'tropism'"),
        ("import jax", 1, "No module named 'jax'"),
    ],
)
def test_code_ends_like_a_script_and_the_interpreter_continues(tier: Tier, code: str, exit_code: int, stderr: str):
    with Sandbox(spec_or_skip(tier)) as sandbox:
        sandbox.run("before = 1")
        result = sandbox.run(code)
        assert (result.exit_code, result.timed_out, result.interpreter_lost) == (exit_code, False, False)
        assert stderr in result.stderr
        assert sandbox.run("print(before)").stdout == "1\n"


@every_tier
@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import os; os._exit(3)", 3),
        ("import ctypes; ctypes.string_at(0)", -11),
        ("import os; os.abort()", -6),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import os; os.close(3)", None),
        ("import os; os.write(3, b'D\\xff\\xff\\xff\\xff')", None),
        ("import os\nwhile True: os.write(3, b'D\\xff\\xff\\x0f\\x00' + b'x' * 100)", None),
    ],
)
def test_the_end_of_the_interpreter_is_a_result(tier: Tier, code: str, exit_code: int | None):
    with Sandbox(spec_or_skip(tier)) as sandbox:
        result = sandbox.run(code, Limits(wall=3))
        assert (result.interpreter_lost, sandbox.is_started) == (True, False)
        assert exit_code is None or result.exit_code == exit_code
        assert sandbox.start().run("print('back')").stdout == "back\n"


@every_tier
@pytest.mark.parametrize(
    ("code", "last_line"),
    [
        ("import socket; socket.socket()", "[sandbox] there is no network"),
        ("import urllib.request; urllib.request.urlopen('http://example.com')", "[sandbox] there is no network"),
        ("import subprocess; subprocess.run(['ls'])", "[sandbox] no other process can be started"),
        ("import os; os.fork()", "[sandbox] this operation is not allowed"),
        ("bytearray(10 ** 10)", "[sandbox] the memory limit is 512 MiB"),
        ("import jax", "[sandbox] packages that can be imported beside the standard library: numpy"),
        ("import os; os._exit(3)", "[sandbox] the interpreter exited with code 3; all variables are lost"),
        ("import os; os.abort()", "[sandbox] the interpreter was killed by signal 6; all variables are lost"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_the_last_line_of_stderr_says_which_limit_was_met(tier: Tier, code: str, last_line: str):
    assert run(tier, code, Limits()).stderr.splitlines()[-1] == last_line


@every_tier
@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(wall=0.3), "it took longer than 0.3 s"), (Limits(cpu=0.2), "it used more than 0.2 s of CPU time")],
)
def test_the_last_line_of_stderr_says_which_time_was_exceeded(tier: Tier, limits: Limits, reason: str):
    result = run(tier, "import sys; sys.stderr.write('begun')\nsys.stderr.flush()\nwhile True: pass", limits)
    assert result.stderr == f"begun\n[sandbox] the step was stopped because {reason}; all variables are lost\n"


@every_tier
@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("x = 3\nx", "3\n"),
        ("None", ""),
        ("x = 3", ""),
        ("import asyncio\nasync def f(): return 'a'\nawait asyncio.sleep(0)\nawait f()", "'a'\n"),
        ("print(_ if False else 1)", "1\n"),
    ],
)
def test_the_value_of_the_last_expression_is_shown(tier: Tier, code: str, stdout: str):
    assert run(tier, code).stdout == stdout


@every_tier
def test_help_is_shown_and_carets_mark_the_place_of_an_error(tier: Tier):
    assert "Return the number of items" in run(tier, "help(len)").stdout
    assert "\n    x = 1 / 0\n        ~~^~~\n" in run(tier, "x = 1 / 0").stderr


def test_tier_a_imports_files_that_the_code_has_written():
    with Sandbox(spec_or_skip("A")) as sandbox:
        sandbox.run("with open('mine.py', 'w') as file: file.write('y = 4')")
        assert sandbox.run("import mine; mine.y").stdout == "4\n"


@pytest.mark.slow
@every_tier
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "9**9**9",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    ],
)
def test_code_that_takes_too_long_is_stopped_and_its_output_kept(tier: Tier, code: str):
    start = time.monotonic()
    result = run(tier, f"print('begun')\n{code}", QUICK)
    assert result.timed_out
    assert (result.stdout, result.exit_code, result.interpreter_lost) == ("begun\n", -9, True)
    assert time.monotonic() - start < 10


@every_tier
def test_cpu_time_is_limited_separately_from_wall_time(tier: Tier):
    start = time.monotonic()
    result = run(tier, "while True: pass", limits=Limits(wall=30, cpu=0.3))
    assert result.timed_out
    assert time.monotonic() - start < 15


@every_tier
def test_output_is_truncated_at_a_limit_and_marked(tier: Tier):
    result = run(tier, "print('é' * 5000)\nimport sys; sys.stderr.write('y' * 5000)")
    assert (result.truncated_output, result.exit_code) == (True, 0)
    assert (result.stdout, result.stderr) == ("é" * 500, "y" * 1000)
    odd = run(tier, "print('x' + 'é' * 5000)")
    assert odd.stdout == "x" + "é" * 499
    assert not run(tier, "print('x' * 999)").truncated_output


@pytest.mark.slow
@every_tier
def test_endless_output_ends_at_the_time_limit_and_stays_within_the_output_limit(tier: Tier):
    result = run(tier, "while True: print('x' * 1000)", QUICK)
    assert (result.timed_out, result.truncated_output, len(result.stdout)) == (True, True, 1000)


@every_tier
def test_invalid_utf8_is_shown_as_escapes(tier: Tier):
    assert run(tier, r"import os; n = os.write(1, b'a\xff\x00\n')").stdout == "a\\xff\x00\n"
    assert run(tier, "import sys; n = sys.stdout.buffer.write(bytes([200, 10]))").stdout == "\\xc8\n"


@every_tier
def test_threads_run_and_remaining_ones_stop_with_the_step(tier: Tier):
    burn = "import threading, time\nn = 0\ndef burn():\n    global n\n    while True: n += 1\n"
    with Sandbox(spec_or_skip(tier)) as sandbox:
        assert (
            sandbox.run(
                "import threading; t = threading.Thread(target=print, args=('hi',)); t.start(); t.join()"
            ).stdout
            == "hi\n"
        )
        sandbox.run(f"{burn}threading.Thread(target=burn, daemon=True).start()")
        used = "import time; print(time.process_time())"
        first = float(sandbox.run(used).stdout)
        time.sleep(0.7)
        assert float(sandbox.run(used).stdout) - first < 0.5


@every_tier
def test_numpy_and_asyncio_work(tier: Tier):
    assert run(tier, "import numpy as np; print(np.linalg.inv(np.eye(3)).sum())", limits=Limits()).stdout == "3.0\n"
    code = "import asyncio\nasync def f():\n    await asyncio.sleep(0); return 3\nprint(asyncio.run(f()))"
    assert run(tier, code, limits=Limits()).stdout == "3\n"
    with Sandbox(SandboxSpec(tier, packages=())) as sandbox:
        assert "No module named 'numpy'" in sandbox.run("import numpy").stderr


@every_tier
def test_only_allowed_packages_can_be_read(tier: Tier):
    home = os.path.dirname(os.path.dirname(pytest.__file__))
    mounts = mounts_for(("numpy",))
    assert (
        not any(home == path or home.startswith(f"{path}/") for path in mounts.readable)
        or sys.prefix == sys.base_prefix
    )
    if sys.prefix != sys.base_prefix:
        assert "Error" in run(tier, f"import os; print(os.listdir({home!r} + '/_pytest'))").stderr
    if tier == "A":
        hidden = run(tier, f"import os; print([os.listdir(path) for path in {mounts.hidden}])").stdout
        assert hidden == f"{[[] for _ in mounts.hidden]}\n"


def test_tier_a_has_a_small_writable_folder():
    write = "open('/tmp/x', 'wb').write(bytes({}))\nimport os; print(os.path.getsize('/tmp/x'))"
    assert run("A", write.format(MEBIBYTE)).stdout == f"{MEBIBYTE}\n"
    assert "OSError" in run("A", write.format(64 * MEBIBYTE)).stderr
    assert "Read-only file system" in run("A", "open('/x', 'w')").stderr


@every_tier
def test_a_seed_seeds_the_module_random(tier: Tier):
    code = "import random; print(random.random(), object(), {'a', 'b', 'c'})"
    printed = {Sandbox(spec_or_skip(tier)).start(seed).run(code).stdout for seed in (1, 1, 2)}
    assert len(printed) == 2


@every_tier
def test_a_killed_worker_does_not_affect_others(tier: Tier):
    with Sandbox(spec_or_skip(tier)) as one, Sandbox(spec_or_skip(tier)) as other:
        other.run("x = 1")
        worker = one._worker  # pyright: ignore[reportPrivateUsage]
        assert worker is not None
        os.kill(worker.pid, 9)
        assert one.run("print(1)").interpreter_lost
        assert other.run("print(x)").stdout == "1\n"


@every_tier
@pytest.mark.slow
def test_closing_during_a_step_kills_the_worker_and_ends_the_step(tier: Tier):
    sandbox = Sandbox(spec_or_skip(tier)).start()
    worker = sandbox._worker  # pyright: ignore[reportPrivateUsage]
    assert worker is not None
    with ThreadPoolExecutor(1) as thread:
        step = thread.submit(sandbox.run, "print('begun', flush=True)\nimport time; time.sleep(60)", Limits(wall=60))
        time.sleep(0.5)
        sandbox.close()
        result = step.result()
    assert (result.stdout, result.exit_code, result.interpreter_lost, result.timed_out) == ("begun\n", -9, True, False)
    assert not os.path.exists(f"/proc/{worker.pid}")
    assert sandbox.start().run("print('back')").stdout == "back\n"
    sandbox.close()


@every_tier
def test_a_worker_has_its_own_session_and_is_killed_first_if_memory_runs_out(tier: Tier):
    with Sandbox(spec_or_skip(tier)) as sandbox:
        worker = sandbox._worker  # pyright: ignore[reportPrivateUsage]
        assert worker is not None
        assert Path(f"/proc/{worker.pid}/oom_score_adj").read_text() == "1000\n"
        assert os.getsid(worker.pid) != os.getsid(0)
        with Sandbox(spec_or_skip(tier)) as other:
            assert os.getsid(worker.pid) != os.getsid(other._worker.pid)  # pyright: ignore


@every_tier
def test_limits_that_the_parent_checks_end_the_interpreter(tier: Tier):
    threads = "import threading, time\nfor _ in range(20): threading.Thread(target=time.sleep, args=(9,)).start()"
    with Sandbox(spec_or_skip(tier)) as sandbox:
        assert not sandbox.run(threads).interpreter_lost
    few = Limits(threads=10)
    assert run(tier, threads, few).interpreter_lost
    if tier == "A":
        files = "for number in range(5000): open(f'/tmp/{number}', 'w').close()"
        assert run(tier, files).interpreter_lost


@every_tier
def test_a_file_of_sqlite_and_posix_locks_work(tier: Tier):
    path = "/tmp/data" if tier == "A" else ":memory:"
    code = f"import sqlite3; db = sqlite3.connect({path!r}); db.execute('create table t (x)')\n"
    code += "with db: db.execute('insert into t values (7)')\nprint(db.execute('select x from t').fetchall())"
    assert run(tier, code).stdout == "[(7,)]\n"


@every_tier
def test_a_worker_cannot_pass_files_to_its_parent(tier: Tier):
    code = """
import array, os, socket, struct
channel = socket.socket(fileno=os.dup(3))
files = array.array("i", [os.open("/dev/null", 0) for _ in range(50)])
channel.sendmsg([struct.pack("<c8sIi", b"D", bytes(8), 4, 0)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
"""
    with Sandbox(spec_or_skip(tier)) as sandbox:
        before = len(os.listdir("/proc/self/fd"))
        assert "PermissionError" in sandbox.run(code).stderr
        sandbox.run("pass")
        assert len(os.listdir("/proc/self/fd")) - before < 20  # spare workers have a few


@every_tier
def test_workers_end_when_the_server_is_killed(tier: Tier):
    spec_or_skip(tier)
    program = f"""
import threading, time
from tropism.sandbox.sandbox import Sandbox
from tropism.sandbox.pool import SandboxSpec
sandbox = Sandbox(SandboxSpec({tier!r})).start()
print(sandbox._worker.pid, flush=True)
sandbox.run("import time; time.sleep(600)")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        worker = int(server.stdout.readline())
        assert os.path.exists(f"/proc/{worker}")
        time.sleep(0.3)
        server.kill()
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{worker}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{worker}")


@pytest.mark.slow
@every_tier
def test_many_sandboxes_in_parallel_keep_their_limits(tier: Tier):
    chosen = spec_or_skip(tier, wall=60, cpu=0.25, memory=256 * MEBIBYTE, output=1000)
    codes = ("print(sum(range(10)))", "while True: pass", "x = bytearray(1 << 30)", "print('x' * 10**6)")

    def run_code(number: int) -> ExecutionResult:
        with Sandbox(chosen) as sandbox:
            return sandbox.run(codes[number % 4])

    with ThreadPoolExecutor(64) as threads:
        results = list(threads.map(run_code, range(64)))
    for number, result in enumerate(results):
        assert (number, result.timed_out) == (number, number % 4 == 1)
        assert len(result.stdout) <= 1000
    assert {result.stdout for result in results[::4]} == {"45\n"}
    assert all("MemoryError" in result.stderr for result in results[2::4])
    assert all(result.truncated_output for result in results[3::4])


@every_tier
def test_a_worker_that_cannot_confine_itself_refuses_to_run(tier: Tier):
    def broken() -> str:
        return worker_source().replace(
            "    _seccomp(libc, ", "    raise OSError('no filter today')\n    _seccomp(libc, "
        )

    pool = Pool(spec_or_skip(tier), spares=0, source=broken)
    with pytest.raises(SandboxError, match="the sandbox refused to run: no filter today") as caught:
        pool.take()
    assert caught.value.value == 97
    pool.close()


@every_tier
@pytest.mark.parametrize(("module", "name"), [(os, "pidfd_open"), (signal, "pidfd_send_signal")])
def test_a_machine_without_pidfd_open_is_rejected(tier: Tier, module: Any, name: str, monkeypatch: pytest.MonkeyPatch):
    pool = Pool(spec_or_skip(tier), spares=0)
    monkeypatch.delattr(module, name)
    with pytest.raises(SandboxError, match=f"{name}.* fails"):
        pool.take()
    assert pool.start_failure() is not None
    monkeypatch.undo()
    pool.take().end()
    assert pool.start_failure() is None
    pool.close()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is searched for programs first, also by the workers' user."""
    spec = spec_or_skip("A")
    shared_pool(spec)._launcher.run(lambda: None)  # pyright: ignore[reportPrivateUsage]  its spare workers are started
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    monkeypatch.setattr(launcher, "_programs", {})
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_bubblewrap_that_shares_the_network_is_rejected(programs: Path):
    real = shutil.which("bwrap")
    write_program(programs / "bwrap", f'shift\nexec {real} --unshare-all --share-net "$@"')
    pool = Pool(SandboxSpec("A"), spares=0)
    with pytest.raises(SandboxError, match="shares the host's net namespace"):
        pool.take()
    pool.close()


def test_replacing_bubblewrap_later_has_no_effect(programs: Path):
    real = shutil.which("bwrap")
    assert real is not None
    shutil.copy(real, programs / "bwrap")
    pool = Pool(SandboxSpec("A"), spares=0)
    pool.take().end()
    write_program(programs / "other", "exit 1")
    os.replace(programs / "other", programs / "bwrap")
    pool.take().end()
    pool.close()


@pytest.mark.usefixtures("untyped")
def test_misuse_raises():
    with pytest.raises(StateError, match="start"):
        Sandbox(SandboxSpec("A")).run("1")
    with pytest.raises(ValidationError, match="wall"):
        Limits(wall=0)
    with pytest.raises(ValidationError, match="memory"):
        Limits(memory=True)
    with pytest.raises(ValidationError, match="tier"):
        SandboxSpec("C")  # pyright: ignore[reportArgumentType]
