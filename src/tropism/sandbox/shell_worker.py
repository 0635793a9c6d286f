"""The program inside the sandbox of a shell: runs one command at a time.

Like `worker`, its source is sent to a fresh interpreter. It is the first process of its namespace, so commands cannot
kill it.
"""

import contextlib
import ctypes
import os
import signal
import struct

from tropism.sandbox.worker import requests, start

BASH = "/bin/bash"
NOT_FOUND = 127
SET_DUMPABLE = 4  # prctl
MOST_KILLABLE = "1000"
CHANGED_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)  # by this program, and by Python

libc = ctypes.CDLL(None)


def execute(command: str) -> int:
    """Run a command to its end, then end every process that it has left; returns its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for number in CHANGED_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            libc.prctl(SET_DUMPABLE, 1, 0, 0, 0)  # else it could not open its own files
            with open("/proc/self/oom_score_adj", "w") as score:  # not the worker, if memory runs out
                score.write(MOST_KILLABLE)
            os.execv(BASH, ["bash", "-c", command])
        finally:
            os._exit(NOT_FOUND)
    while (ended := os.wait())[0] != pid:  # this process adopts those whose parent has ended
        continue
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # every process of the namespace but this one
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return os.waitstatus_to_exitcode(ended[1])


def main() -> None:
    channel = start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a command could send it
    channel.send(b"R")
    for _, payload in requests(channel):
        libc.prctl(SET_DUMPABLE, 0, 0, 0, 0)  # the parent has opened files of this process by now; commands cannot
        command = payload.partition(b"\0")[2].decode("utf-8", "surrogatepass")
        channel.send(b"D", struct.pack("<i", execute(command)))
