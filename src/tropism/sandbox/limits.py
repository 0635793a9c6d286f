"""Resource limits of a sandbox."""

import math
from dataclasses import dataclass, fields

from tropism.errors import ValidationError

MEBIBYTE = 2**20
MAX_CPU_LIFETIME = 3600  # seconds of CPU time; ends a worker whose parent failed to
MAX_SHARED_THREADS = 4096  # of all workers together, if they share a user


@dataclass(frozen=True)
class Limits:
    """`wall` and `cpu`, in seconds, and `output`, in bytes, are limits of a step; `memory` and `files`, in bytes,
    and `threads` are limits of the whole episode."""

    wall: int | float = 5.0
    cpu: int | float = 5.0
    memory: int = 512 * MEBIBYTE
    output: int = 64 * 1024  # of stdout, and as much of stderr
    files: int = 16 * MEBIBYTE
    threads: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf or (field.type is int and not isinstance(value, int)):
                raise ValidationError(field.name, value, f"a positive number like {field.default}")

    def resources(self, without_namespaces: bool, shell: bool = False) -> dict[str, int]:
        """The kernel's limits of one worker. Threads are counted per user namespace, if it has one."""
        return {
            "RLIMIT_AS": self.memory,
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": MAX_CPU_LIFETIME,
            "RLIMIT_FSIZE": self.files,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_NOFILE": 1024 if shell else 128,
            "RLIMIT_NPROC": MAX_SHARED_THREADS if without_namespaces else self.threads,
            "RLIMIT_SIGPENDING": 128,
        }
