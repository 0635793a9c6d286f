"""Attacks on files, the network, other processes and privileges; with those of other modules, the whole set."""

from tropism.sandbox.attack import (
    LIBC,
    SYSCALL,
    Attack,
    changes_file,
    creates_file,
    kills_decoy,
    passes_descriptor,
    reaches_socket,
)
from tropism.sandbox.resource_attacks import RESOURCES, SHARED
from tropism.sandbox.submission_attacks import SUBMISSIONS

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
COMPAT_SYSCALL = """
import ctypes, mmap, platform
if platform.machine() == 'x86_64':
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex('53b814000000cd805bc3'))  # push rbx; mov eax, getpid; int 0x80; pop rbx; ret
    call = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    if call() > 0: print(DONE)
"""
PASS_DESCRIPTOR = """
import os, socket
end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]
file = os.open('/dev/null', os.O_RDONLY).to_bytes(4, 'little')
end.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, file)], 0, DATAGRAM)
"""
READING = (
    Attack("read a host file", "print(open(FILE).read())"),
    Attack("read it through /proc", "print(open(f'/proc/{SERVER}/root{FILE}').read())", needs_root=True),
    Attack("read it through a link", "import os; os.symlink(FILE, NEW); print(open(NEW).read()); os.unlink(NEW)"),
    Attack("read the server's environment", "print(open(f'/proc/{SERVER}/environ').read() and DONE)", needs_root=True),
    Attack("read its own environment", "import os; print(os.environ.get('TROPISM_SANDBOX_SECRET'))"),
    Attack("read a process's memory map", "print(open(f'/proc/{DECOY}/maps').read() and DONE)"),
    Attack("list a host folder", "import os; print('secret' in os.listdir(FOLDER) and DONE)"),
    Attack("list /sys", "import os; print(os.listdir('/sys/kernel') and DONE)"),
    Attack("read kernel memory", OPENS.format("('/proc/kcore', '/dev/mem', '/dev/kmsg')", "rb"), needs_root=True),
    Attack(
        "open a disk",
        "import glob"
        + OPENS.format("glob.glob('/dev/[vsxn]d*') + glob.glob('/dev/nvme*') + ['/dev/vda', '/dev/sda']", "rb"),
        needs_root=True,
        harmless=False,
    ),
    Attack(
        "watch a host folder",
        LIBC + "i = libc.inotify_init1(0)\nif libc.inotify_add_watch(i, FOLDER.encode(), 2) > 0: print(DONE)",
    ),
)
WRITING = (
    Attack("write outside", "open(NEW, 'w').write(DONE)", oracle=creates_file),
    Attack("overwrite a host file", "open(FILE, 'w').write('gone')", oracle=changes_file),
    Attack("truncate a host file", "import os; os.truncate(FILE, 0)", oracle=changes_file),
    Attack("delete a host file", "import os; os.unlink(FILE)", oracle=changes_file),
    Attack("rename a host file", "import os; os.rename(FILE, NEW)", oracle=changes_file),
    Attack("link into a host folder", "import os; os.symlink('/etc', NEW)", oracle=creates_file),
    Attack("make a host folder", "import os; os.mkdir(NEW); os.rmdir(NEW); print(DONE)", oracle=creates_file),
    Attack("make a pipe on the host", "import os; os.mkfifo(NEW)", oracle=creates_file),
    Attack("change a host file's mode", "import os; os.chmod(FILE, 0o600)", oracle=changes_file),
    Attack("change a host file's times", "import os; os.utime(FILE, (1, 1))", oracle=changes_file),
    Attack("change a host file's owner", "import os; os.chown(FILE, 1, 1); print(DONE)", needs_root=True),
    Attack("set an extended attribute", "import os; os.setxattr(FILE, 'user.x', b'1'); print(DONE)"),
    Attack(
        "set a kernel parameter",
        OPENS.format("('/proc/sys/kernel/domainname', '/proc/sys/vm/swappiness')", "r+"),
        needs_root=True,
    ),
    Attack(
        "write to a control group",
        OPENS.format(
            "('/sys/fs/cgroup/cgroup.procs', '/sys/fs/cgroup/pids/tasks', '/sys/fs/cgroup/pids/cgroup.procs')", "r+"
        ),
        needs_root=True,
    ),
    Attack(
        "make a device",
        "import os, stat; os.mknod('/tmp/d', stat.S_IFBLK | 0o600, os.makedev(8, 0)); os.unlink('/tmp/d'); print(DONE)",
        needs_root=True,
    ),
    Attack("fill the disk", FLOOD, harmless=False, changes_worker=True),
)
NETWORK = (
    Attack("connect over TCP", CONNECT.format("AF_INET", "tuple(TCP)"), oracle=reaches_socket("tcp")),
    Attack(
        "send over UDP",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', tuple(UDP))",
        oracle=reaches_socket("udp"),
    ),
    Attack(
        "send a datagram to a socket file",
        "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', DATAGRAM)",
        oracle=reaches_socket("datagram"),
    ),
    Attack("pass an open file to a host socket", PASS_DESCRIPTOR, oracle=passes_descriptor),
    Attack(
        "send data out of band",
        "import socket; pair = socket.socketpair(); pair[0].send(b'x', socket.MSG_OOB); print(DONE)",
    ),
    Attack("connect to a socket file", CONNECT.format("AF_UNIX", "SOCKET"), oracle=reaches_socket("path")),
    Attack(
        "connect to an abstract socket",
        CONNECT.format("AF_UNIX", "'\\0' + ABSTRACT"),
        oracle=reaches_socket("abstract"),
    ),
    Attack("listen on a port", "import socket; s = socket.create_server(('127.0.0.1', 0)); print(DONE)"),
    Attack(
        "ask the kernel over netlink",
        "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print(DONE)",
    ),
    Attack(
        "open a raw socket",
        "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print(DONE)",
        needs_root=True,
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
        "import os, sys; os.execv(sys.executable, [sys.executable, '-S', '-c', f'open({NEW!r}, \"w\")'])",
        oracle=creates_file,
        changes_worker=True,
    ),
    Attack(
        "leave a daemon",
        "import os\nif os.fork() == 0:\n    os.setsid(); open(NEW, 'w').close(); os._exit(0)\nos.wait()",
        oracle=creates_file,
    ),
    Attack(
        "fork bomb",
        "import os\nfor _ in range(64):\n    if os.fork() == 0: os._exit(0)\n    print(DONE)",
        harmless=False,
    ),
    Attack(
        "kill a process of the host", "import os; os.kill(DECOY, 9); import time; time.sleep(0.1)", oracle=kills_decoy
    ),
    Attack("signal the server", "import os; os.kill(SERVER, 0); print(DONE)", needs_root=True),
    Attack("signal every process", "import os; os.kill(-1, 0); print(DONE)"),
    Attack("trace a process", LIBC + "if libc.ptrace(0x4206, DECOY, 0, 0) == 0: print(DONE)"),
    Attack("read another process's memory", SYSCALL + PEEK),
    Attack(
        "limit another process", "import resource; resource.prlimit(DECOY, resource.RLIMIT_CORE, (0, 0)); print(DONE)"
    ),
    Attack("slow another process down", "import os; os.setpriority(os.PRIO_PROCESS, DECOY, 5); print(DONE)"),
    Attack("read another process's CPU clock", "import time; time.clock_gettime(~DECOY << 3 | 2); print(DONE)"),
    Attack("hold on to another process", "import os; os.pidfd_open(DECOY); print(DONE)"),
)
PRIVILEGES = (
    Attack("become root", "import os; os.setuid(0); print(DONE)", needs_root=True),
    Attack(
        "mount a file system",
        LIBC + "if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: print(DONE)",
        harmless=False,
    ),
    Attack("nested user namespace", LIBC + "if libc.unshare(0x10000000) == 0: print(DONE)"),
    Attack("own network namespace", LIBC + "if libc.unshare(0x40000000) == 0: print(DONE)", needs_root=True),
    Attack("change the root folder", "import os; os.chroot('/'); print(DONE)", needs_root=True),
    Attack(
        "rename the host",
        LIBC + "n = os.uname().nodename.encode()\nif libc.sethostname(n, len(n)) == 0: print(DONE)",
        needs_root=True,
    ),
    Attack("lift a limit", "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 64)); print(DONE)"),
    Attack(
        "keep a key in the kernel",
        SYSCALL + "if libc.syscall(217 if arm else 248, b'user', b'tropism', b'x', 1, -2) > 0: print(DONE)",
    ),
    Attack(
        "share memory by number",
        LIBC + "i = libc.shmget(0, 4096, 0o1600)\nif i >= 0: libc.shmctl(i, 0, None); print(DONE)",
    ),
    Attack("a file in memory", "import os; os.memfd_create('x'); print(DONE)"),
    Attack("load a kernel program", SYSCALL + BPF, needs_root=True),
    Attack(
        "queue work in the kernel",
        SYSCALL + "if libc.syscall(425, 4, ctypes.create_string_buffer(120)) >= 0: print(DONE)",
        harmless=False,
    ),
    Attack("drop the parent's death signal", LIBC + "if libc.prctl(1, 0, 0, 0, 0) == 0: print(DONE)"),
    Attack("call through the 32-bit interface", COMPAT_SYSCALL, changes_worker=True),
)
ATTACKS = (*READING, *WRITING, *NETWORK, *PROCESSES, *PRIVILEGES, *RESOURCES, *SHARED, *SUBMISSIONS)
