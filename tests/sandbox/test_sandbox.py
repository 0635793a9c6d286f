"""What code in a sandbox can do, what it comes to when it goes wrong, and that nobody else notices."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.sandbox.cells import cell, every_tier

from tropism.errors import SandboxError, StateError, ValidationError
from tropism.sandbox.limits import MEBIBYTE, Limits
from tropism.sandbox.pool import Cell, Pool, Tier, worker_source
from tropism.sandbox.sandbox import Result, Sandbox
from tropism.sandbox.view import view_of

SHORT = Limits(wall=20, cpu=20, output=1000)
QUICK = Limits(wall=1.5, cpu=1.5, output=1000)


def run(tier: Tier, code: str, limits: Limits = SHORT) -> Result:
    with Sandbox(cell(tier)) as sandbox:
        return sandbox.run(code, limits)


@every_tier
def test_variables_live_on_and_are_gone_with_the_interpreter(tier: Tier):
    with Sandbox(cell(tier)) as sandbox:
        sandbox.run("x = 1\ndef f(): return x")
        assert sandbox.run("x += 1; print(f())").stdout == "2\n"
    with Sandbox(cell(tier)) as sandbox:
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
def test_code_ends_as_a_script_would_and_the_interpreter_lives_on(tier: Tier, code: str, exit_code: int, stderr: str):
    with Sandbox(cell(tier)) as sandbox:
        sandbox.run("before = 1")
        result = sandbox.run(code)
        assert (result.exit_code, result.timed_out, result.lost) == (exit_code, False, False)
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
def test_an_interpreter_that_ends_is_a_result(tier: Tier, code: str, exit_code: int | None):
    with Sandbox(cell(tier)) as sandbox:
        result = sandbox.run(code, Limits(wall=3))
        assert (result.lost, sandbox.started) == (True, False)
        assert exit_code is None or result.exit_code == exit_code
        assert sandbox.start().run("print('back')").stdout == "back\n"


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
def test_what_takes_too_long_is_stopped_and_what_it_printed_is_kept(tier: Tier, code: str):
    start = time.monotonic()
    result = run(tier, f"print('begun')\n{code}", QUICK)
    assert result.timed_out
    assert (result.stdout, result.exit_code, result.lost) == ("begun\n", -9, True)
    assert time.monotonic() - start < 10


@every_tier
def test_cpu_time_is_limited_apart_from_the_clock(tier: Tier):
    start = time.monotonic()
    result = run(tier, "while True: pass", limits=Limits(wall=30, cpu=0.3))
    assert result.timed_out
    assert time.monotonic() - start < 15


@every_tier
def test_output_is_cut_at_a_limit_and_marked(tier: Tier):
    result = run(tier, "print('é' * 5000)\nimport sys; sys.stderr.write('y' * 5000)")
    assert (result.truncated_output, result.exit_code) == (True, 0)
    assert (result.stdout, result.stderr) == ("é" * 500, "y" * 1000)
    odd = run(tier, "print('x' + 'é' * 5000)")
    assert odd.stdout == "x" + "é" * 499
    assert not run(tier, "print('x' * 999)").truncated_output


@pytest.mark.slow
@every_tier
def test_endless_output_ends_with_the_time_and_stays_within_the_limit(tier: Tier):
    result = run(tier, "while True: print('x' * 1000)", QUICK)
    assert (result.timed_out, result.truncated_output, len(result.stdout)) == (True, True, 1000)


@every_tier
def test_bytes_that_are_no_text_are_shown_as_escapes(tier: Tier):
    assert run(tier, r"import os; os.write(1, b'a\xff\x00\n')").stdout == "a\\xff\x00\n"
    assert run(tier, "import sys; sys.stdout.buffer.write(bytes([200, 10]))").stdout == "\\xc8\n"


@every_tier
def test_threads_run_and_those_left_behind_stop_with_the_step(tier: Tier):
    burn = "import threading, time\nn = 0\ndef burn():\n    global n\n    while True: n += 1\n"
    with Sandbox(cell(tier)) as sandbox:
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
    with Sandbox(Cell(tier, packages=())) as sandbox:
        assert "No module named 'numpy'" in sandbox.run("import numpy").stderr


@every_tier
def test_only_allowed_packages_can_be_read(tier: Tier):
    home = os.path.dirname(os.path.dirname(pytest.__file__))
    view = view_of(("numpy",))
    assert (
        not any(home == path or home.startswith(f"{path}/") for path in view.readable) or sys.prefix == sys.base_prefix
    )
    if sys.prefix != sys.base_prefix:
        assert "Error" in run(tier, f"import os; print(os.listdir({home!r} + '/_pytest'))").stderr
    if tier == "A":
        covered = run(tier, f"import os; print([os.listdir(path) for path in {view.covered}])").stdout
        assert covered == f"{[[] for _ in view.covered]}\n"


def test_tier_a_has_a_small_place_for_files():
    write = "open('/tmp/x', 'wb').write(bytes({}))\nimport os; print(os.path.getsize('/tmp/x'))"
    assert run("A", write.format(MEBIBYTE)).stdout == f"{MEBIBYTE}\n"
    assert "OSError" in run("A", write.format(64 * MEBIBYTE)).stderr
    assert "Read-only file system" in run("A", "open('/x', 'w')").stderr


@every_tier
def test_a_seed_is_where_random_begins(tier: Tier):
    code = "import random; print(random.random(), object(), {'a', 'b', 'c'})"
    printed = {Sandbox(cell(tier)).start(seed).run(code).stdout for seed in (1, 1, 2)}
    assert len(printed) == 2


@every_tier
def test_a_killed_worker_takes_nobody_with_it(tier: Tier):
    with Sandbox(cell(tier)) as one, Sandbox(cell(tier)) as other:
        other.run("x = 1")
        worker = one._worker  # pyright: ignore[reportPrivateUsage]
        assert worker is not None
        os.kill(worker.pid, 9)
        assert one.run("print(1)").lost
        assert other.run("print(x)").stdout == "1\n"


@every_tier
def test_a_worker_cannot_hand_files_to_its_parent(tier: Tier):
    code = """
import array, os, socket, struct
channel = socket.socket(fileno=os.dup(3))
files = array.array("i", [os.open("/dev/null", 0) for _ in range(50)])
channel.sendmsg([struct.pack("<cIi", b"D", 4, 0)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
"""
    with Sandbox(cell(tier)) as sandbox:
        before = len(os.listdir("/proc/self/fd"))
        assert sandbox.run(code).exit_code == 0
        sandbox.run("pass")
        assert len(os.listdir("/proc/self/fd")) - before < 20  # workers started ahead have a few


@every_tier
def test_workers_end_with_the_server_however_it_ends(tier: Tier):
    cell(tier)
    program = f"""
import threading, time
from tropism.sandbox.sandbox import Sandbox
from tropism.sandbox.pool import Cell
sandbox = Sandbox(Cell({tier!r})).start()
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
def test_many_at_once_keep_their_limits(tier: Tier):
    chosen = cell(tier, wall=60, cpu=0.25, memory=256 * MEBIBYTE, output=1000)
    codes = ("print(sum(range(10)))", "while True: pass", "x = bytearray(1 << 30)", "print('x' * 10**6)")

    def live(number: int) -> Result:
        with Sandbox(chosen) as sandbox:
            return sandbox.run(codes[number % 4])

    with ThreadPoolExecutor(64) as threads:
        results = list(threads.map(live, range(64)))
    for number, result in enumerate(results):
        assert (number, result.timed_out) == (number, number % 4 == 1)
        assert len(result.stdout) <= 1000
    assert {result.stdout for result in results[::4]} == {"45\n"}
    assert all("MemoryError" in result.stderr for result in results[2::4])
    assert all(result.truncated_output for result in results[3::4])


@every_tier
def test_a_worker_that_cannot_confine_itself_refuses(tier: Tier):
    def broken() -> str:
        return worker_source().replace(
            "    _seccomp(libc, ", "    raise OSError('no filter today')\n    _seccomp(libc, "
        )

    pool = Pool(cell(tier), ahead=0, source=broken)
    with pytest.raises(SandboxError, match="the sandbox refused to run: no filter today") as caught:
        pool.take()
    assert caught.value.value == 97
    pool.close()


@pytest.mark.usefixtures("untyped")
def test_misuse_is_told():
    with pytest.raises(StateError, match="start"):
        Sandbox(Cell("A")).run("1")
    with pytest.raises(ValidationError, match="wall"):
        Limits(wall=0)
    with pytest.raises(ValidationError, match="memory"):
        Limits(memory=True)
    with pytest.raises(ValidationError, match="tier"):
        Cell("C")  # pyright: ignore[reportArgumentType]
