"""What one step in a sandbox may use."""

import math
from dataclasses import dataclass, fields

from tropism.errors import ValidationError

MEBIBYTE = 2**20
LIFETIME = 3600  # seconds of CPU time that a worker has in all, should nobody be left to end it
SHARED_THREADS = 4096  # of all workers together, where they share a user


@dataclass(frozen=True)
class Limits:
    """`wall` and `cpu` in seconds and `output` in bytes are those of a step; `memory` and `files`, in bytes,
    and `threads` those of the whole episode."""

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

    def resources(self, alone: bool) -> dict[str, int]:
        """The kernel's limits of one worker. One that is not `alone` has a user namespace in which to count threads."""
        return {
            "RLIMIT_AS": self.memory,
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": LIFETIME,
            "RLIMIT_FSIZE": self.files,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_NOFILE": 128,
            "RLIMIT_NPROC": SHARED_THREADS if alone else self.threads,
            "RLIMIT_SIGPENDING": 128,
        }
