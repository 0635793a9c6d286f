"""Attacks on limits of time, memory and output, and on what all workers of a server share."""

from functools import partial

from tropism.sandbox.attack import (
    FORGED_EXIT_CODE,
    LIBC,
    QUICK,
    SYSCALL,
    Attack,
    answers_for_later_step,
    exceeds_output,
    exceeds_time,
    locks_shared_file,
)

MANY_THREADS = """
import threading, time
threading.stack_size(65536)
for _ in range({}): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
time.sleep(0.3)
print(DONE)
"""
SOCKET_BUFFERS = """
import socket
total, pairs = 0, []
def fill():
    global total
    pair = socket.socketpair()
    pairs.append(pair)
    for end in pair:
        try: end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        except PermissionError: pass
        end.setblocking(False)
        try:
            while total < 96 << 20: total += end.send(bytes(65536))
        except BlockingIOError: pass
"""
LARGE_SOCKET_BUFFERS = f"""{SOCKET_BUFFERS}
try:
    for _ in range(200): fill()
except OSError: pass
if total >= 96 << 20: print(DONE)
"""
UNSHARED_TABLES = f"""{LIBC}{SOCKET_BUFFERS}
import threading
def unshare_and_fill():
    libc.close_range(900, 1000, 2)
    try:
        for _ in range(50): fill()
    except OSError: pass
threads = [threading.Thread(target=unshare_and_fill) for _ in range(20)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if total >= 96 << 20: print(DONE)
"""
THREAD_WITH_OWN_TABLE = f"""{LIBC}
stack = ctypes.create_string_buffer(1 << 16)
top = ctypes.c_void_p((ctypes.addressof(stack) + len(stack)) & -16)
flags = 0x100 | 0x200 | 0x800 | 0x10000  # CLONE_VM, CLONE_FS, CLONE_SIGHAND, CLONE_THREAD; not CLONE_FILES
if libc.clone(libc.sched_yield, top, flags, None) > 0: print(DONE)
import time; time.sleep(0.1)
"""
PAGE_TABLES = f"""{LIBC}
import time
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for number in range(20_000):  # every page in a gigabyte of its own, which needs two pages of tables
    ctypes.string_at(libc.mmap(0x100000000000 + (number << 30), 4096, 1, 0x32, -1, 0), 1)
time.sleep(0.3)
print(DONE)
"""
EMPTY_FILES = """
import os, time
place = FOLDER if os.access(FOLDER, os.W_OK) else '/tmp'
for number in range(20_000): os.close(os.open(f'{place}/{number}', os.O_CREAT | os.O_WRONLY))
time.sleep(0.3)
print(DONE)
"""
FILE_LOCKS = """
import fcntl, os
file = open(os.__file__)
for place in range(0, 2000, 2): fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, place)
"""
LEASE = """
import fcntl, os, sys
if not os.path.exists(FILE) and os.access('/tmp', os.W_OK): open('/tmp/leased', 'w').close()
for path in (FILE, '/tmp/leased', os.__file__, sys.executable):
    try: fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK); print(DONE)
    except OSError: continue
"""
NOTIFICATION = """
import fcntl, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
folder = os.open(os.path.dirname(os.__file__), os.O_RDONLY)
fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_ACCESS | fcntl.DN_MULTISHOT)
print(DONE)
"""
EVICTION = """
import os
os.posix_fadvise(os.open(os.__file__, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
print(DONE)
"""
ADVICE = f"""{LIBC}
file = os.open(os.__file__, os.O_RDONLY)
libc.mmap.restype = ctypes.c_void_p
page = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(4096), 1, 2, file, ctypes.c_long(0)))
if libc.madvise(page, ctypes.c_size_t(4096), {{}}) == 0 or ctypes.get_errno() != 1: print(DONE)
"""
BARRIER = f"""{SYSCALL}
if libc.syscall(283 if arm else 324, 2, 0, 0) == 0 or ctypes.get_errno() != 1: print(DONE)
"""
FILES_IN_TRANSIT = """
import os, socket
pair, files = socket.socketpair(), [os.open('/dev/null', os.O_RDONLY) for _ in range(50)]
for _ in range(2): socket.send_fds(pair[0], [b'x'], files)
print(DONE)
"""
TIMERS = f"""{LIBC}
import signal, struct
signal.signal(signal.SIGCONT, lambda *arguments: None)  # the kernel stops a timer whose signal is ignored
def start_timer(nanoseconds):
    timer = ctypes.c_void_p()
    event = struct.pack('<Qii48x', 0, 18, 0)  # SIGCONT to this process
    if libc.timer_create(1, event, ctypes.byref(timer)) != 0: raise OSError('no timer')
    libc.timer_settime(timer, 0, struct.pack('<4q', 0, nanoseconds, 0, nanoseconds), None)
"""
SPIN = """
import os, threading, time
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
"""
SIGNAL_ITSELF = f"""{LIBC}
import threading, time
pid = os.getpid()
def proceed():
    while True: libc.kill(pid, 18)
for _ in range(4): threading.Thread(target=proceed, daemon=True).start()
"""
START_CLOCK = "before = time.process_time()"
HAS_RUN = "if time.process_time() - before > 0.1: print(DONE)"
FORGE = f"""
import gc, struct
channel = next(each for each in gc.get_objects() if type(each).__name__ == 'Channel')
for _ in range(5): channel.send(b'D', struct.pack('<i', {FORGED_EXIT_CODE}))
"""

Hog = partial(Attack, harmless=False, changes_worker=True)
Flood = partial(Attack, changes_worker=True, at_startup=False)

RESOURCES = (
    Hog("allocate 10 GB", "x = bytearray(10 << 30); print(DONE)"),
    Hog(
        "allocate little by little",
        "x = []\nfor _ in range(80): x.append(bytearray(b'x' * (32 << 20)))\nprint(DONE)",
        at_startup=False,
    ),
    Hog("loop for ever", "while True: pass", oracle=exceeds_time, limits=QUICK),
    Hog("freeze in one expression", "9 ** 9 ** 9", oracle=exceeds_time, at_startup=False, limits=QUICK),
    Hog("sleep past the limit", "import time; time.sleep(60)", oracle=exceeds_time, limits=QUICK),
    Hog(
        "ignore signals and loop",
        "import signal\nfor n in (2, 3, 15, 18, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        oracle=exceeds_time,
        at_startup=False,
        limits=QUICK,
    ),
    Hog(
        "catch every exception and loop",
        "while True:\n    try:\n        while True: pass\n    except BaseException: continue",
        oracle=exceeds_time,
        at_startup=False,
        limits=QUICK,
    ),
    Hog("flood stdout", "while True: print('x' * 100)", oracle=exceeds_output, limits=QUICK),
    Hog(
        "flood stderr from below",
        "import os\nwhile True: os.write(2, b'x' * 65536)",
        oracle=exceeds_output,
        at_startup=False,
        limits=QUICK,
    ),
    Hog("start 5000 threads", MANY_THREADS.format(5000), at_startup=False),
    Hog("open 5000 files", "import os\nx = [os.open('/dev/null', 0) for _ in range(5000)]\nprint(DONE)"),
    Flood("start 300 threads", MANY_THREADS.format(300)),
    Flood("fill large socket buffers", LARGE_SOCKET_BUFFERS),
    Flood("give each thread its own open files", UNSHARED_TABLES),
    Attack("start a thread with its own open files", THREAD_WITH_OWN_TABLE, at_startup=False),
    Flood("fill memory with page tables", PAGE_TABLES),
    Flood("fill memory with empty files", EMPTY_FILES),
    Flood("run between steps, woken by a timer", f"{TIMERS}start_timer(10**6)\n{SPIN}{START_CLOCK}", HAS_RUN),
    Flood("run between steps, woken by itself", f"{SIGNAL_ITSELF}{START_CLOCK}", HAS_RUN),
)
SHARED = (
    Attack("lock ranges of a shared file", FILE_LOCKS, oracle=locks_shared_file),
    Attack(
        "lock a shared file",
        "import fcntl, os; file = open(os.__file__); fcntl.flock(file, fcntl.LOCK_EX)",
        oracle=locks_shared_file,
    ),
    Attack("take a lease on a file", LEASE),
    Attack("watch a shared folder", NOTIFICATION),
    Attack("evict a shared file from memory", EVICTION),
    Attack("page a shared file out", ADVICE.format(21)),
    Attack("merge memory with other processes", ADVICE.format(12)),
    Attack("interrupt other processors", BARRIER),
    Attack("use up the shared quota of open files in transit", FILES_IN_TRANSIT),
    Attack(
        "use up the shared pipe quota",
        "import fcntl, os; pipe = os.pipe(); fcntl.fcntl(pipe[1], 1031, 1 << 20); print(DONE)",
    ),
    Attack("use up the shared timer quota", f"{TIMERS}for _ in range(100): start_timer(10**18)\nprint(DONE)"),
    Attack(
        "answer for a later step",
        FORGE,
        "pass",
        oracle=answers_for_later_step,
        harmless=False,  # a test proves the oracle with a parent that uses the same token for every request
        at_startup=False,
        changes_worker=True,
    ),
)
