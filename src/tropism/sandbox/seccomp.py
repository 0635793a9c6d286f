"""The system calls that code in a sandbox may make, as a seccomp filter in the kernel's binary format.

Other calls fail with EPERM; a call of another architecture kills the process.
"""

import errno
import platform
import struct
from collections.abc import Iterable
from typing import NamedTuple

from tropism.errors import SandboxError

# name, number on x86_64, number on aarch64; "-" where an architecture has no such call.
READING = """
read 0 63, write 1 64, close 3 57, fstat 5 80, lseek 8 62, mmap 9 222, mprotect 10 226, munmap 11 215, brk 12
214, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, pread64 17 67, pwrite64 18 68, readv 19
65, writev 20 66, access 21 -, faccessat 269 48, faccessat2 439 439, pipe 22 -, pipe2 293 59, select 23 -,
pselect6 270 72, poll 7 -, ppoll 271 73, sched_yield 24 124, mremap 25 216, msync 26 227, dup 32
23, dup2 33 -, dup3 292 24, pause 34 -, nanosleep 35 101, getitimer 36 102, setitimer 38 103, alarm 37 -, getpid
39 172, gettid 186 178, getppid 110 173, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177,
getgroups 115 158, getresuid 118 148, getresgid 120 150, getpgrp 111 -, getpgid 121 155, getsid 124 156, uname
63 160, fsync 74 82, fdatasync 75 83, getdents 78 -, getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50,
open 2 -, openat 257 56, stat 4 -, lstat 6 -, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44,
readlink 89 -, readlinkat 267 78, umask 95 166, gettimeofday 96 169, time 201 -, times 100 153, getrusage 98
165, getrlimit 97 163, sysinfo 99 179, getcpu 309 168, sched_getaffinity 204 123, sched_getparam 143 121,
sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126, getpriority 140 141,
set_tid_address 218 96, set_robust_list 273 99, get_robust_list 274 100, rseq 334 293,
arch_prctl 158 -, futex 202 98, exit 60 93, exit_group 231 94, restart_syscall 219 128, sigaltstack 131 132,
rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133, timerfd_settime 286 86, timerfd_gettime
287 87, eventfd 284 -, eventfd2 290 19, signalfd4 289 74, epoll_create 213 -, epoll_create1 291 20, epoll_ctl
233 21, epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441, getrandom 318 278, sendfile 40 71,
copy_file_range 326 285, shutdown 48 210, getsockname 51 204, getpeername 52 205
"""
WRITING = """
mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, rename 82 -, renameat 264 38,
renameat2 316 276, truncate 76 45, ftruncate 77 46, fallocate 285 47, chmod 90 -, fchmod 91 52, fchmodat 268
53, utimensat 280 88, utime 132 -, utimes 235 -, futimesat 261 -, symlink 88 -, symlinkat 266 36, link 86 -,
linkat 265 37
"""
CONDITIONAL = """
kill 62 129, tgkill 234 131, clone 56 220, prctl 157 167, prlimit64 302 261, ioctl 16 29, fcntl 72 25, close_range
436 436, socketpair 53 199, getsockopt 55 209, sendto 44 206, sendmsg 46 211, recvfrom 45 207, recvmsg 47 212,
clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, timerfd_create 283 85, madvise 28 233, fadvise64
221 223
"""
PROCESSES = """
fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, wait4 61 260, waitid 247 95, kill 62 129, tkill 200 130, tgkill
234 131, setpgid 109 154, setsid 112 157, setrlimit 160 164, prlimit64 302 261, setpriority 141 140, flock 73 32, chown
92 -, fchown 93 55, lchown 94 -, fchownat 260 54, fchmodat2 452 452, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10,
listxattr 194 11, llistxattr 195 12, flistxattr 196 13, capget 125 90, splice 275 76, tee 276 77, mincore 27 232, preadv
295 69, pwritev 296 70, preadv2 327 286, pwritev2 328 287, sched_setaffinity 203 122, timer_create 222 107,
timer_settime 223 110, timer_gettime 224 108, timer_getoverrun 225 109, timer_delete 226 111
"""
PIPES = "mknod 133 -, mknodat 259 33"
MISSING = "clone3 435 435, openat2 437 437"  # fail with ENOSYS, so that the C library falls back to older calls

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH
X32 = 0x40000000  # the bit that marks a call of the x32 ABI

LOAD, JUMP_EQUAL, JUMP_GREATER, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data

ALL_BITS, SIGN_BIT = 0xFFFFFFFF, 0x80000000


class Check(NamedTuple):
    """A condition on the lower half of one argument: its bits in `mask` are one of `values`, or none of them."""

    argument: int
    values: tuple[int, ...]
    mask: int = ALL_BITS
    forbidden: bool = False


THREAD_AND_FILES = 0x00010000 | 0x00000400  # CLONE_THREAD, CLONE_FILES
NAMESPACES = 0x7E020080  # every CLONE_NEW flag
NOT_SIGCONT = (18,)  # a worker that sends itself SIGCONT could run between steps
STREAM, STREAM_FLAGS = 1, 0o2004000  # SOCK_STREAM, SOCK_CLOEXEC | SOCK_NONBLOCK
MSG_OOB = 1
DO_NOT_NEED = 4  # POSIX_FADV_DONTNEED
NO_OUT_OF_BAND = (0,), MSG_OOB
SET_LOCK, SET_LOCK_WAIT = 6, 7  # fcntl
# Duplicating, flags, F_GETLK and F_GETPIPE_SZ: no leases, notifications, signals or pipe sizes.
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 1030, 1032)
HARMLESS_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # is it a terminal, how many bytes, flags
OWN_CLOCK = Check(0, (0,), SIGN_BIT)  # negative numbers are the CPU clocks of processes

CHECKS: dict[str, tuple[Check, ...]] = {
    # A single process: not 0 (a group), nor negative (a group, or every process).
    "kill": (Check(0, (0,), SIGN_BIT), Check(0, (0,), forbidden=True), Check(1, NOT_SIGCONT, forbidden=True)),
    "tgkill": (Check(2, NOT_SIGCONT, forbidden=True),),
    # Threads with one table of open files, without new namespaces: every thread counts against RLIMIT_NOFILE.
    "clone": (Check(0, (THREAD_AND_FILES,), THREAD_AND_FILES | NAMESPACES),),
    "close_range": (Check(2, (0, 4)),),  # CLOSE_RANGE_CLOEXEC, but not CLOSE_RANGE_UNSHARE
    "prctl": (Check(0, (15, 16)),),  # PR_SET_NAME, PR_GET_NAME
    "ioctl": (Check(1, HARMLESS_IOCTLS),),
    "fcntl": (Check(1, FCNTL_COMMANDS),),
    # AF_UNIX. A datagram socket could send to any socket file.
    "socketpair": (Check(0, (1,)), Check(1, (STREAM,), ALL_BITS ^ STREAM_FLAGS)),
    "getsockopt": (Check(1, (1,)), Check(2, (3, 4, 38, 39))),  # SO_TYPE, SO_ERROR, SO_PROTOCOL, SO_DOMAIN
    "sendto": (Check(3, *NO_OUT_OF_BAND),),
    "recvfrom": (Check(3, *NO_OUT_OF_BAND),),
    "recvmsg": (Check(2, *NO_OUT_OF_BAND),),
    "clock_gettime": (OWN_CLOCK,),
    "clock_getres": (OWN_CLOCK,),
    "clock_nanosleep": (OWN_CLOCK,),
    "timerfd_create": (OWN_CLOCK,),
    "madvise": (Check(2, (0, 1, 2, 3, 4, 8, 14, 15, 16, 17, 22, 23)),),  # not merging, nor paging out, shared memory
    "fadvise64": (Check(3, (DO_NOT_NEED,), forbidden=True),),  # would evict files that all workers read
}

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand
DENY: Instruction = (RETURN, 0, 0, ERRNO | errno.EPERM)
PERMIT: Instruction = (RETURN, 0, 0, ALLOW)


FIFO, FILE_KIND = 0o010000, 0o170000  # bits of a mode
# The checks of a shell, whose processes have namespaces and a control group of their own.
SHELL_CHECKS: dict[str, tuple[Check, ...]] = {
    "clone": (Check(0, (0,), NAMESPACES),),
    "sendmsg": (Check(2, *NO_OUT_OF_BAND),),  # code needs none: the open files that it could send count for all workers
    "fcntl": (Check(1, (*FCNTL_COMMANDS, SET_LOCK, SET_LOCK_WAIT, 36, 37, 38)),),  # also locks of open files
    "prctl": (Check(0, (1, 2, 3, 4, 15, 16, 23, 36, 37, 38, 39)),),  # death signal, dumpable, name, subreaper
    "mknod": (Check(1, (FIFO,), FILE_KIND),),
    "mknodat": (Check(2, (FIFO,), FILE_KIND),),
}


def program(writing: bool, machine: str = "", processes: bool = False) -> bytes:
    """The filter; `writing` allows calls that change files, which only the file system then restricts, and
    `processes` those that start other processes."""
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        raise SandboxError("machine", machine, f"one of {', '.join(ARCHITECTURES)}: others have no filter")
    column, architecture = ARCHITECTURES[machine]
    conditional = _numbers(CONDITIONAL, column) | (_numbers(PIPES, column) if processes else {})
    tables = [READING, *([WRITING] if writing else []), *([PROCESSES] if processes else [])]
    allowed = [number for table in tables for number in _numbers(table, column).values()]
    instructions: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (JUMP_GREATER, 0, 1, X32),
        (RETURN, 0, 0, KILL),
    ]
    for number in allowed:
        instructions += _if_call(number, [PERMIT])
    for number in _numbers(MISSING, column).values():
        instructions += _if_call(number, [(RETURN, 0, 0, ERRNO | errno.ENOSYS)])
    for name, checks in (CHECKS | SHELL_CHECKS if processes else CHECKS).items():
        first = _pretend_to_lock() if name == "fcntl" and not processes else []
        if name in conditional:
            instructions += _if_call(conditional[name], [*first, *_allow_if(checks)])
    instructions += _if_call(conditional["prlimit64"], _allow_null(2))
    instructions.append(DENY)
    return b"".join(struct.pack("<HBBI", *line) for line in instructions)


def _numbers(table: str, column: int) -> dict[str, int]:
    rows = (row.split() for row in table.split(","))
    return {name: int(numbers[column]) for name, *numbers in rows if numbers[column] != "-"}


def _if_call(number: int, body: list[Instruction]) -> list[Instruction]:
    """Run `body`, which returns, for one call; skip it for all others."""
    return [(JUMP_EQUAL, 0, len(body), number), *body]


def _argument(index: int, high: bool = False) -> Instruction:
    return LOAD, 0, 0, FIRST_ARGUMENT + 8 * index + (4 if high else 0)


def _allow_if(checks: Iterable[Check]) -> list[Instruction]:
    """Allow the call if its arguments pass every check."""
    body: list[Instruction] = []
    for check in checks:
        body += [_argument(check.argument), (AND, 0, 0, check.mask)]
        if check.forbidden:
            body += [line for value in check.values for line in ((JUMP_EQUAL, 0, 1, value), DENY)]
            continue
        left = range(len(check.values), 0, -1)  # a match jumps over the other values and the refusal
        body += [(JUMP_EQUAL, jump, 0, value) for jump, value in zip(left, check.values, strict=True)]
        body.append(DENY)
    return [*body, PERMIT]


def _pretend_to_lock() -> list[Instruction]:
    """Setting a POSIX lock succeeds and does nothing. Such a lock only affects other processes, and a sandbox has
    a single one; but each takes kernel memory that no limit counts. SQLite sets them."""
    succeed: Instruction = (RETURN, 0, 0, ERRNO)
    return [_argument(1), (JUMP_EQUAL, 1, 0, SET_LOCK), (JUMP_EQUAL, 0, 1, SET_LOCK_WAIT), succeed]


def _allow_null(index: int) -> list[Instruction]:
    return [
        _argument(index),
        (JUMP_EQUAL, 0, 3, 0),
        _argument(index, high=True),
        (JUMP_EQUAL, 0, 1, 0),
        PERMIT,
        DENY,
    ]
