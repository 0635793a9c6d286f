"""Attacks on a sandbox, as data: what each tries, and how the host sees that it succeeded."""

from collections.abc import Callable
from dataclasses import dataclass

from tropism.sandbox.bait import Bait, ended, reached
from tropism.sandbox.limits import Limits
from tropism.sandbox.sandbox import Result

Oracle = Callable[[Bait, Result], bool]
QUICK = Limits(wall=0.4, cpu=0.4, output=2000)
PATIENT = Limits(wall=3.0, cpu=3.0, output=2000)


def told(bait: Bait, result: Result) -> bool:
    """The attack printed what only its success lets it print."""
    return bait.secret in result.stdout + result.stderr


def changed(bait: Bait, result: Result) -> bool:
    return told(bait, result) or bait.changed()


def made(bait: Bait, result: Result) -> bool:
    return told(bait, result) or bait.exists()


def arrived(name: str) -> Oracle:
    """Something came to this socket of the bait."""
    return lambda bait, result: told(bait, result) or reached(bait.sockets[name])


def killed(bait: Bait, result: Result) -> bool:
    return told(bait, result) or ended(bait.decoy)


def outlasted(bait: Bait, result: Result) -> bool:
    """It came to an end of its own, as no such code should within its limit."""
    return told(bait, result) or not (result.timed_out or result.lost)


def flooded(bait: Bait, result: Result) -> bool:
    return told(bait, result) or len(result.stdout + result.stderr) > 2 * QUICK.output


@dataclass(frozen=True)
class Attack:
    """`harmless` attacks succeed without a sandbox and hurt nobody, which proves their oracle; `by_root` only when
    root tries. One that is `lasting` may leave its worker in another state than it was."""

    name: str
    code: str
    oracle: Oracle = told
    harmless: bool = True
    by_root: bool = False
    lasting: bool = False
    limits: Limits = PATIENT


LIBC = "import ctypes, os, platform; libc = ctypes.CDLL(None, use_errno=True)\n"
SYSCALL = LIBC + "arm = platform.machine() == 'aarch64'\n"
CONNECT = "import socket; s = socket.socket(socket.{}, socket.SOCK_STREAM); s.connect({})"
OPENS = "\nfor path in {}:\n    try:\n        open(path, {!r}).close(); print(DONE)\n    except OSError: continue\n"
FLOOD = """
total = 0
for place in ('.', '/tmp', '/var/tmp', '/dev/shm', '/', FOLDER):
    for number in range(32):
        try:
            with open(f'{place}/flood-{number}', 'wb') as file:
                while total < 256 << 20:
                    total += file.write(bytes(1 << 20))
        except OSError: continue
if total >= 64 << 20: print(DONE)
"""

PEEK = """
own = ctypes.create_string_buffer(8)
here = (ctypes.c_size_t * 2)(ctypes.addressof(own), 8)
there = (ctypes.c_size_t * 2)(ADDRESS, 8)
one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
if libc.process_vm_readv(DECOY, here, one, there, one, none) == 8: print(DONE)
"""
BPF = """
refused = libc.syscall(280 if arm else 321, 0, ctypes.create_string_buffer(64), 64) == -1 and ctypes.get_errno() == 1
if not refused: print(DONE)
"""
NARROW_DOOR = """
import ctypes, mmap, platform
if platform.machine() == 'x86_64':
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex('53b814000000cd805bc3'))  # push rbx; mov eax, getpid; int 0x80; pop rbx; ret
    call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    if call() > 0: print(DONE)
"""
MANY_THREADS = """
import threading, time
threading.stack_size(65536)
for _ in range(5000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(DONE)
"""

READING = (
    Attack("read a host file", "print(open(FILE).read())"),
    Attack("read it through /proc", "print(open(f'/proc/{SERVER}/root{FILE}').read())", by_root=True),
    Attack(
        "read it through a link",
        "import os; link = FOLDER + '-link'; os.symlink(FILE, link); print(open(link).read()); os.unlink(link)",
        lasting=True,
    ),
    Attack("read the server's environment", "print(open(f'/proc/{SERVER}/environ').read() and DONE)", by_root=True),
    Attack("read its own environment", "import os; print(os.environ.get('TROPISM_BAIT'))"),
    Attack("read a process's memory map", "print(open(f'/proc/{DECOY}/maps').read() and DONE)"),
    Attack("list a host folder", "import os; print('secret' in os.listdir(FOLDER) and DONE)"),
    Attack("list /sys", "import os; print(os.listdir('/sys/kernel') and DONE)"),
    Attack("read kernel memory", OPENS.format("('/proc/kcore', '/dev/mem', '/dev/kmsg')", "rb"), by_root=True),
    Attack(
        "open a disk",
        "import glob"
        + OPENS.format("glob.glob('/dev/[vsxn]d*') + glob.glob('/dev/nvme*') + ['/dev/vda', '/dev/sda']", "rb"),
        by_root=True,
        harmless=False,
    ),
    Attack(
        "watch a host folder",
        LIBC + "i = libc.inotify_init1(0)\nif libc.inotify_add_watch(i, FOLDER.encode(), 2) > 0: print(DONE)",
    ),
)
WRITING = (
    Attack("write outside", "open(NEW, 'w').write(DONE)", made),
    Attack("overwrite a host file", "open(FILE, 'w').write('gone')", changed),
    Attack("truncate a host file", "import os; os.truncate(FILE, 0)", changed),
    Attack("delete a host file", "import os; os.unlink(FILE)", changed),
    Attack("rename a host file", "import os; os.rename(FILE, NEW)", changed),
    Attack("link into a host folder", "import os; os.symlink('/etc', NEW)", made),
    Attack("make a host folder", "import os; os.mkdir(NEW); os.rmdir(NEW); print(DONE)", made),
    Attack("make a pipe on the host", "import os; os.mkfifo(NEW)", made),
    Attack("change a host file's mode", "import os; os.chmod(FILE, 0o600)", changed),
    Attack("change a host file's times", "import os; os.utime(FILE, (1, 1))", changed),
    Attack("change a host file's owner", "import os; os.chown(FILE, 1, 1); print(DONE)", by_root=True),
    Attack("set an extended attribute", "import os; os.setxattr(FILE, 'user.x', b'1'); print(DONE)"),
    Attack(
        "set a kernel parameter",
        OPENS.format("('/proc/sys/kernel/domainname', '/proc/sys/vm/swappiness')", "r+"),
        by_root=True,
    ),
    Attack(
        "write to a control group",
        OPENS.format(
            "('/sys/fs/cgroup/cgroup.procs', '/sys/fs/cgroup/pids/tasks', '/sys/fs/cgroup/pids/cgroup.procs')", "r+"
        ),
        by_root=True,
    ),
    Attack(
        "make a device",
        "import os, stat; os.mknod('/tmp/d', stat.S_IFBLK | 0o600, os.makedev(8, 0)); os.unlink('/tmp/d'); print(DONE)",
        by_root=True,
    ),
    Attack("fill the disk", FLOOD, harmless=False, lasting=True),
)
NETWORK = (
    Attack("connect over TCP", CONNECT.format("AF_INET", "tuple(TCP)"), arrived("tcp")),
    Attack(
        "send over UDP",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', tuple(UDP))",
        arrived("udp"),
    ),
    Attack("connect to a socket file", CONNECT.format("AF_UNIX", "SOCKET"), arrived("path")),
    Attack("connect to an abstract socket", CONNECT.format("AF_UNIX", "'\\0' + ABSTRACT"), arrived("abstract")),
    Attack("listen on a port", "import socket; s = socket.create_server(('127.0.0.1', 0)); print(DONE)"),
    Attack(
        "ask the kernel over netlink",
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print(DONE)",
    ),
    Attack(
        "open a raw socket",
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print(DONE)",
        by_root=True,
    ),
)
PROCESSES = (
    Attack("fork", "import os\nif os.fork() == 0: os._exit(0)\nprint(DONE)"),
    Attack(
        "fork by the bare system call",
        SYSCALL
        + "pid = libc.syscall(220 if arm else 56, 17, 0, 0, 0, 0)\nif pid == 0: os._exit(0)\nif pid > 0: print(DONE)",
    ),
    Attack(
        "run a program",
        "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'pass'], check=True); print(DONE)",
    ),
    Attack(
        "become another program",
        "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-c', f'print({DONE!r})'])",
        lasting=True,
    ),
    Attack(
        "leave a daemon",
        "import os\nif os.fork() == 0:\n    os.setsid(); open(NEW, 'w').close(); os._exit(0)\nos.wait()",
        made,
    ),
    Attack(
        "fork bomb",
        "import os\nfor _ in range(64):\n    if os.fork() == 0: os._exit(0)\n    print(DONE)",
        harmless=False,
    ),
    Attack("kill a process of the host", "import os; os.kill(DECOY, 9); import time; time.sleep(0.1)", killed),
    Attack("signal the server", "import os; os.kill(SERVER, 0); print(DONE)", by_root=True),
    Attack("signal everybody", "import os; os.kill(-1, 0); print(DONE)"),
    Attack("trace a process", LIBC + "if libc.ptrace(0x4206, DECOY, 0, 0) == 0: print(DONE)"),
    Attack(
        "read another process's memory",
        SYSCALL + PEEK,
    ),
    Attack(
        "limit another process", "import resource; resource.prlimit(DECOY, resource.RLIMIT_CORE, (0, 0)); print(DONE)"
    ),
    Attack("slow another process down", "import os; os.setpriority(os.PRIO_PROCESS, DECOY, 5); print(DONE)"),
    Attack("hold on to another process", "import os; os.pidfd_open(DECOY); print(DONE)"),
)
PRIVILEGES = (
    Attack("become root", "import os; os.setuid(0); print(DONE)", by_root=True),
    Attack(
        "mount a file system",
        LIBC + "if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: print(DONE)",
        harmless=False,
    ),
    Attack("nested user namespace", LIBC + "if libc.unshare(0x10000000) == 0: print(DONE)", lasting=True),
    Attack("own network namespace", LIBC + "if libc.unshare(0x40000000) == 0: print(DONE)", by_root=True, lasting=True),
    Attack("change the root folder", "import os; os.chroot('/'); print(DONE)", by_root=True),
    Attack(
        "rename the host",
        LIBC + "n = os.uname().nodename.encode()\nif libc.sethostname(n, len(n)) == 0: print(DONE)",
        by_root=True,
    ),
    Attack("lift a limit", "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 64)); print(DONE)", lasting=True),
    Attack(
        "keep a key in the kernel",
        SYSCALL + "if libc.syscall(217 if arm else 248, b'user', b'tropism', b'x', 1, -2) > 0: print(DONE)",
    ),
    Attack(
        "share memory by number",
        LIBC + "i = libc.shmget(0, 4096, 0o1600)\nif i >= 0: libc.shmctl(i, 0, None); print(DONE)",
    ),
    Attack("a file in memory", "import os; os.memfd_create('x'); print(DONE)"),
    Attack(
        "load a kernel program",
        SYSCALL + BPF,
        by_root=True,
    ),
    Attack(
        "queue work in the kernel",
        SYSCALL + "if libc.syscall(425, 4, ctypes.create_string_buffer(120)) >= 0: print(DONE)",
        harmless=False,
    ),
    Attack("drop the parent's death signal", LIBC + "if libc.prctl(1, 0, 0, 0, 0) == 0: print(DONE)"),
    Attack(
        "call through the 32-bit door",
        NARROW_DOOR,
        lasting=True,
    ),
)
RESOURCES = (
    Attack("allocate 10 GB", "x = bytearray(10 << 30); print(DONE)", harmless=False, lasting=True),
    Attack(
        "allocate little by little",
        "x = []\nfor _ in range(80): x.append(bytearray(b'x' * (32 << 20)))\nprint(DONE)",
        harmless=False,
        lasting=True,
    ),
    Attack("loop for ever", "while True: pass", outlasted, harmless=False, lasting=True, limits=QUICK),
    Attack("freeze in one expression", "9 ** 9 ** 9", outlasted, harmless=False, lasting=True, limits=QUICK),
    Attack(
        "sleep past the limit", "import time; time.sleep(60)", outlasted, harmless=False, lasting=True, limits=QUICK
    ),
    Attack(
        "ignore signals and loop",
        "import signal\nfor n in (2, 3, 15, 18, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        outlasted,
        harmless=False,
        lasting=True,
        limits=QUICK,
    ),
    Attack(
        "catch every exception and loop",
        "while True:\n    try:\n        while True: pass\n    except BaseException: continue",
        outlasted,
        harmless=False,
        lasting=True,
        limits=QUICK,
    ),
    Attack("flood stdout", "while True: print('x' * 100)", flooded, harmless=False, lasting=True, limits=QUICK),
    Attack(
        "flood stderr from below",
        "import os\nwhile True: os.write(2, b'x' * 65536)",
        flooded,
        harmless=False,
        lasting=True,
        limits=QUICK,
    ),
    Attack(
        "start 5000 threads",
        MANY_THREADS,
        harmless=False,
        lasting=True,
    ),
    Attack(
        "open 5000 files",
        "import os\nx = [os.open('/dev/null', 0) for _ in range(5000)]\nprint(DONE)",
        harmless=False,
        lasting=True,
    ),
)
ATTACKS = (*READING, *WRITING, *NETWORK, *PROCESSES, *PRIVILEGES, *RESOURCES)
