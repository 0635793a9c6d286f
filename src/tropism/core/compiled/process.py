"""Rejects compiled environments in a process that was forked from one that has used them."""

import os

from tropism.errors import ProcessError

_user: int | None = None  # the process that used compiled environments first; a fork inherits it


def check_process() -> None:
    """Raise an error in a forked process, where JAX would wait forever for threads that a fork does not copy."""
    global _user
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise ProcessError(
            "process",
            os.getpid(),
            "a process that was not forked",
            "this process was forked from one that has used JAX, which does not work in a fork. Start processes by "
            'spawn, as in gymnasium.make_vec(..., vectorization_mode="async", vector_kwargs={"context": "spawn"}), or '
            "use the compiled vector environment: gymnasium.make_vec without vectorization_mode",
        )
