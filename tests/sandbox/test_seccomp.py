"""The seccomp filter: one for each supported architecture, an error for others."""

import struct

import pytest

from tropism.errors import SandboxError
from tropism.sandbox import seccomp


@pytest.mark.parametrize(("machine", "clone"), [("x86_64", 56), ("aarch64", 220)])
def test_there_is_a_filter_for_each_architecture(machine: str, clone: int):
    lines = list(struct.iter_unpack("<HBBI", seccomp.program(writing=True, machine=machine)))
    assert lines[-1] == (seccomp.RETURN, 0, 0, seccomp.ERRNO | 1)
    assert any(line[0] == seccomp.JUMP_EQUAL and line[3] == clone for line in lines)
    assert len(lines) > len(seccomp.program(writing=False, machine=machine)) // 8


def test_an_unsupported_architecture_is_rejected():
    with pytest.raises(SandboxError, match="riscv64"):
        seccomp.program(writing=True, machine="riscv64")


def test_every_jump_stays_within_the_program():
    lines = list(struct.iter_unpack("<HBBI", seccomp.program(writing=True, machine="x86_64")))
    for place, (operation, yes, no, _) in enumerate(lines):
        if operation in (seccomp.JUMP_EQUAL, seccomp.JUMP_GREATER):
            assert place + 1 + max(yes, no) < len(lines)
