"""On a kernel without pidfd_open, which a filter simulates, every interface reports why Coding-v0 is unavailable."""

import json
import subprocess
import sys

import pytest

from tropism.envs.coding.coding import Coding

REASON = Coding.unavailable_reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
WITHOUT_PIDFD = """
import ctypes, errno, struct
from tropism.sandbox import seccomp, worker
PIDFD_OPEN, NO_NEW_PRIVILEGES = 434, 38
lines = [
    (seccomp.LOAD, 0, 0, seccomp.NUMBER),
    (seccomp.JUMP_EQUAL, 0, 1, PIDFD_OPEN),
    (seccomp.RETURN, 0, 0, seccomp.ERRNO | errno.ENOSYS),
    seccomp.PERMIT,
]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
worker._seccomp(libc, b"".join(struct.pack("<HBBI", *line) for line in lines))
"""
COMMAND = "import sys; from tropism.cli import main; sys.argv[1:] = {!r}; main()"
EXPECTED = ("tier A: ", "tier B: ", "pidfd_open", "Function not implemented")


def run(program: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", f"{WITHOUT_PIDFD}\n{program}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def check(text: str) -> None:
    flat = " ".join(text.split())
    assert all(words in flat for words in EXPECTED), text
    assert "Traceback" not in text


def test_make_raises_with_the_reason():
    done = run("""
from tropism import make, UnknownEnvironmentError
try:
    make("Coding-v0")
except UnknownEnvironmentError as error:
    print(error)
""")
    assert "Traceback" not in done.stderr
    check(done.stdout)


@pytest.mark.slow
def test_list_says_absent_with_the_reason():
    done = run(COMMAND.format(["list", "--json"]))
    rows = {row["id"]: row for row in json.loads(done.stdout)}
    check(rows["Coding-v0"]["absent"])
    assert "pidfd_open" in rows["Shell-v0"]["absent"]
    assert "absent" not in rows["Echo-v0"]


@pytest.mark.slow
def test_serve_refuses_with_the_reason():
    done = run(COMMAND.format(["serve", "Coding-v0", "--port", "0"]))
    assert done.returncode == 2
    check(done.stderr)
