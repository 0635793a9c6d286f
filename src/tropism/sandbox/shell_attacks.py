"""Attacks by commands of a shell, which may start any number of processes."""

from functools import partial

from tropism.sandbox.attack import (
    QUICK,
    Attack,
    changes_file,
    creates_file,
    exceeds_output,
    exceeds_time,
    kills_decoy,
    leaves_processes,
    reaches_socket,
)

Quick = partial(Attack, shell=True)
Command = partial(Attack, shell=True, at_startup=False)
Hog = partial(Attack, shell=True, harmless=False, at_startup=False)

WITH_PYTHON = "python3 -c \"import socket; socket.create_connection(('${TCP% *}', ${TCP#* }))\""
HOLD_MEMORY = "python3 -c \"x = bytearray(b'x' * (300 << 20)); import time; time.sleep(1); print('held')\""
LEAVE = "setsid bash -c 'trap \"\" HUP TERM INT; sleep 60; : '$DONE </dev/null >/dev/null 2>&1 &"
GROUP_FILES = "/sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs"

SHELL_ATTACKS = (
    Quick("read a host file with a command", "cat $FILE"),
    Command("read it through a process's root", "cat /proc/*/root$FILE"),
    Command(
        "read the server's environment with a command",
        "cat /proc/$SERVER/environ >/dev/null && echo $DONE",
        needs_root=True,
    ),
    Command("overwrite a host file with a command", "echo gone > $FILE", oracle=changes_file),
    Quick("create a host file with a command", "touch $NEW", oracle=creates_file),
    Quick("connect over TCP with bash", "exec 3<>/dev/tcp/${TCP/ //}", oracle=reaches_socket("tcp")),
    Command("connect over TCP with Python", WITH_PYTHON, oracle=reaches_socket("tcp")),
    Command("connect over TCP with git", "timeout 1 git ls-remote git://${TCP/ /:}/x", oracle=reaches_socket("tcp")),
    Quick("kill a process of the host with a command", "kill -9 $DECOY; sleep 0.1", oracle=kills_decoy),
    Command("leave a process behind", f"{LEAVE} sleep 0.2", oracle=leaves_processes),
    Quick("leave an orphan behind", f"( ( {LEAVE} ) & ) ; sleep 0.2", oracle=leaves_processes),
    Quick(
        "read the memory map of the parent process",
        "head -c 1 /proc/$PPID/maps >/dev/null && echo $DONE",
        needs_root=True,
    ),
    Quick("enter a user namespace with a command", "unshare --user true && echo $DONE"),
    Command(
        "mount a file system with a command", "unshare --mount mount -t tmpfs none /tmp && echo $DONE", needs_root=True
    ),
    Command("become root with a command", "setpriv --reuid=0 --clear-groups echo $DONE", needs_root=True),
    Quick(
        "leave the control group", f"for file in {GROUP_FILES}; do [ -w $file ] && echo $DONE; done", needs_root=True
    ),
    Command("lower the limit of another process", "prlimit --pid $DECOY --core=0 && echo $DONE"),
    Hog("fork bomb of a shell", 'b() { b | b & }; b; sleep 1; set -- /proc/[0-9]*; [ $# -gt 200 ] && echo "$DONE"'),
    Hog(
        "hold memory in several processes",
        f"[ $({{ {HOLD_MEMORY} & {HOLD_MEMORY} & wait; }} | wc -l) -gt 1 ] && echo $DONE",
    ),
    Hog(
        "fill the disk with a command",
        "head -c 300M /dev/zero > big; [ $(stat -c %s big) -gt 200000000 ] && echo $DONE",
    ),
    Hog("wait past the limit", "sleep 60 & wait", oracle=exceeds_time, limits=QUICK),
    Hog("flood stdout with a command", "yes", oracle=exceeds_output, limits=QUICK),
)
