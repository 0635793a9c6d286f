"""The LLVM backend: emits LLVM assembly for the CPU."""

import platform
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tropism.core.native.builder import DType, Origin, Scalar, Unsupported

MAX_INSTRUCTIONS = 40_000  # larger programs compile slowly, and XLA runs them as fast
FLUSH_DENORMALS = 0x8040  # bits of x86's MXCSR register, which XLA sets while it runs a program

IS_X86 = platform.machine() in ("x86_64", "AMD64")

TYPES = {
    "b1": "i1",
    "i1": "i8",
    "u1": "i8",
    "i2": "i16",
    "u2": "i16",
    "i4": "i32",
    "u4": "i32",
    "i8": "i64",
    "u8": "i64",
    "f4": "float",
    "f8": "double",
}
# `contract` permits fused multiply-adds, which XLA uses too.
FLOAT_OPS = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv", "rem": "frem"}
FLOAT_INTRINSICS = {
    "abs": "fabs",
    "min": "minimum",
    "max": "maximum",
    "round_even": "roundeven",
    "round_away": "round",
    **{name: name for name in ("floor", "ceil", "sqrt", "sin", "cos", "tan", "pow", "copysign", "fma")},
}
LIBM = {"cbrt", "atan2"}
INTEGER_OPS = {"add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr"}
BLOCK = 256  # lanes whose state stays in the fastest cache for several steps
LANE = "%lane"
OPERAND = re.compile(r"%\w+")
DIVISION = re.compile(r"  (?P<register>%\w+) = fdiv (?P<kind>\w+) (?P<x>\S+), (?P<y>\S+)")
CONSTANT = ", !invariant.load !{}"  # memory that is not written
LANE_ARGUMENTS = "ptr %table, i64 %time, i64 %first, i64 %end"
# Memory of different lanes is independent, so the loop may be vectorised; one with a mask is not. Vectorising is not
# requested, because LLVM then warns on standard error about a loop that it cannot vectorise.
METADATA = """
!1 = distinct !{}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.parallel_accesses", !1}
!4 = distinct !{!4, !5}
!5 = !{!"llvm.loop.vectorize.enable", i1 false}
"""
DIRECTIONS = {"eq": ("oeq", "eq"), "ne": ("une", "ne")}


class LlvmBuilder:
    """A scalar is its LLVM operand: the name of a register or the text of a constant."""

    functions: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.batch_lane: Scalar | None = None
        self.origins: dict[Scalar, Origin] = {}
        self._entry: list[str] = []  # before the loop over lanes, if there is one
        self._lines: list[str] = []
        self._notes: dict[Scalar, str] = {}  # what the optimizer may assume of accesses through a pointer
        self._registers: dict[str, str] = {}
        self._lane_values: set[Scalar] = {LANE}  # those that differ between lanes
        self._shared_values: set[Scalar] = set()  # those that are computed from constant memory alone
        self._declarations: set[str] = set()
        self._count = 0

    def emit(self, text: str, pure: bool = True) -> Scalar:
        """The register that holds the result of an instruction; equal pure instructions share one."""
        if pure and text in self._registers:
            return self._registers[text]
        register = self._new_register()
        self._lines.append(f"  {register} = {text}")
        operands = OPERAND.findall(text)
        for values in (self._lane_values, self._shared_values):
            if not values.isdisjoint(operands):
                values.add(register)
                break
        if pure:
            self._registers[text] = register
        return register

    def _new_register(self) -> Scalar:
        self._count += 1
        if self._count > MAX_INSTRUCTIONS:
            raise Unsupported("program", f"it takes more than {MAX_INSTRUCTIONS:,} instructions")
        return f"%v{self._count}"

    def _emit_before(self, text: str) -> Scalar:
        register = self._new_register()
        self._entry.append(f"  {register} = {text}")
        return register

    def constant(self, value: Any, dtype: DType) -> Scalar:
        if dtype.kind == "f":
            return f"0x{struct.pack('>d', float(dtype.type(value))).hex()}"
        return str(int(value))

    def op(self, name: str, dtype: DType, *operands: Scalar) -> Scalar:
        return self._float_op(name, dtype, operands) if dtype.kind == "f" else self._integer_op(name, dtype, operands)

    def _float_op(self, name: str, dtype: DType, operands: tuple[Scalar, ...]) -> Scalar:
        kind = type_of(dtype)
        if name == "neg":
            return self.emit(f"fneg contract {kind} {operands[0]}")
        if name in FLOAT_OPS:
            return self.emit(f"{FLOAT_OPS[name]} {kind} {', '.join(operands)}")
        if name in LIBM:
            return self._call(name + ("f" if kind == "float" else ""), kind, kind, *operands)
        return self._call(f"llvm.{FLOAT_INTRINSICS[name]}.f{dtype.itemsize * 8}", kind, kind, *operands)

    def _integer_op(self, name: str, dtype: DType, operands: tuple[Scalar, ...]) -> Scalar:
        kind, sign = type_of(dtype), "s" if dtype.kind == "i" else "u"
        if name in ("add", "or", "xor") and "0" in operands:
            return operands[1] if operands[0] == "0" else operands[0]
        if name in INTEGER_OPS:
            return self.emit(f"{name} {kind} {', '.join(operands)}")
        if name == "neg":
            return self.emit(f"sub {kind} 0, {operands[0]}")
        if name in ("div", "rem"):
            return self.emit(f"{sign}{name} {kind} {', '.join(operands)}")
        if name in ("min", "max"):
            return self._call(f"llvm.{sign}{name}.{kind}", kind, kind, *operands)
        if name == "popcount":
            return self._call(f"llvm.ctpop.{kind}", kind, kind, *operands)
        intrinsic = {"abs": "abs", "clz": "ctlz"}[name]
        self._declarations.add(f"declare {kind} @llvm.{intrinsic}.{kind}({kind}, i1)")
        return self.emit(f"call {kind} @llvm.{intrinsic}.{kind}({kind} {operands[0]}, i1 false)")

    def _call(self, function: str, result: str, kind: str, *operands: Scalar) -> Scalar:
        self._declarations.add(f"declare {result} @{function}({', '.join([kind] * len(operands))})")
        return self.emit(f"call {result} @{function}({', '.join(f'{kind} {x}' for x in operands)})")

    def compare(self, direction: str, dtype: DType, x: Scalar, y: Scalar) -> Scalar:
        sign = "s" if dtype.kind == "i" else "u"
        ordered, integer = DIRECTIONS.get(direction, (f"o{direction}", f"{sign}{direction}"))
        instruction = f"fcmp {ordered}" if dtype.kind == "f" else f"icmp {integer}"
        return self.emit(f"{instruction} {type_of(dtype)} {x}, {y}")

    def select(self, condition: Scalar, dtype: DType, x: Scalar, y: Scalar) -> Scalar:
        kind = type_of(dtype)
        return x if x == y else self.emit(f"select i1 {condition}, {kind} {x}, {kind} {y}")

    def convert(self, x: Scalar, source: DType, target: DType) -> Scalar:
        before, after = type_of(source), type_of(target)
        if target.kind == "b":
            return self.compare("ne", source, x, self.constant(0, source))
        if source.kind == "f" and target.kind != "f":
            sign = "s" if target.kind == "i" else "u"
            return self._call(f"llvm.fpto{sign}i.sat.{after}.f{source.itemsize * 8}", after, before, x)
        if source.kind != "f" and target.kind == "f":
            return self.emit(f"{'si' if source.kind == 'i' else 'ui'}tofp {before} {x} to {after}")
        if before == after:
            return x
        if target.itemsize < source.itemsize:
            return self.emit(f"{'fptrunc' if target.kind == 'f' else 'trunc'} {before} {x} to {after}")
        widen = {"f": "fpext", "i": "sext"}.get(source.kind, "zext")
        return self.emit(f"{widen} {before} {x} to {after}")

    def bitcast(self, x: Scalar, source: DType, target: DType) -> Scalar:
        before, after = type_of(source), type_of(target)
        return x if before == after else self.emit(f"bitcast {before} {x} to {after}")

    def allocate(self, dtype: DType, items: int) -> Scalar:
        return self._emit_before(f"alloca [{items} x {type_of(dtype)}], align 16")

    def load(self, pointer: Scalar, dtype: DType, index: Scalar) -> Scalar:
        kind = type_of(dtype)
        if kind == "i1":
            return self.emit(f"trunc i8 {self.load(pointer, np.dtype(np.uint8), index)} to i1")
        address = self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {index}")
        note = self._notes.get(pointer, "")
        text = f"load {kind}, ptr {address}, align {min(dtype.itemsize, 4)}{note}"
        value = self.emit(text, pure=note == CONSTANT)
        if value not in self._lane_values:
            (self._shared_values if note == CONSTANT else self._lane_values).add(value)
        return value

    def store(self, pointer: Scalar, dtype: DType, index: Scalar, value: Scalar) -> None:
        kind = type_of(dtype)
        if kind == "i1":
            byte = np.dtype(np.uint8)
            return self.store(pointer, byte, index, self.convert(value, dtype, byte))
        address = self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {index}")
        note = self._notes.get(pointer, "")
        self._lines.append(f"  store {kind} {value}, ptr {address}, align {min(dtype.itemsize, 4)}{note}")
        return None

    def load_pointer(self, index: int) -> Scalar:
        """Entry `index` of the table of pointers."""
        address = self._emit_before(f"getelementptr ptr, ptr %table, i64 {index}")
        return self._emit_before(f"load ptr, ptr {address}")

    def load_lane_pointer(self, index: int, constant: bool) -> Scalar:
        """Entry `index` of a table of pointers and their steps in bytes per unit of `%time`."""
        address = self._emit_before(f"getelementptr [2 x i64], ptr %table, i64 {index}")
        stride = self._emit_before(f"getelementptr i64, ptr {address}, i64 1")
        start, step = self._emit_before(f"load ptr, ptr {address}"), self._emit_before(f"load i64, ptr {stride}")
        offset = self._emit_before(f"mul i64 {step}, %time")
        pointer = self._emit_before(f"getelementptr i8, ptr {start}, i64 {offset}")
        self._notes[pointer] = CONSTANT if constant else ", !llvm.access.group !1"
        return pointer

    @property
    def instructions(self) -> int:
        return self._count

    def function(self, name: str) -> tuple[set[str], str]:
        """Declarations and the assembly of a function of `%table`, a table of pointers, with what was emitted."""
        body = "\n".join((*self._entry, *self._lines))
        inner = f"define internal void @{name}.body(ptr %table) noinline {{\n{body}\n  ret void\n}}\n"
        return self._declarations, inner + _export(name, "ptr %table", f"  call void @{name}.body(ptr %table)\n")

    def loop(self, name: str, mask: Scalar | None) -> tuple[set[str], str]:
        """Declarations and a function that runs what was emitted for `%lane` from `%first` to `%end`.

        With a pointer to a mask, only for the lanes where it is true.
        """
        entry, body = "\n".join(self._entry), "\n".join(self._with_inverses())
        test = "  br label %body\n"
        if mask is not None:
            test = (
                f"  %at = getelementptr i8, ptr {mask}, i64 %lane\n  %byte = load i8, ptr %at\n"
                "  %chosen = icmp ne i8 %byte, 0\n  br i1 %chosen, label %body, label %latch\n"
            )
        return self._declarations, (
            f"define internal void @{name}.lanes({LANE_ARGUMENTS}) noinline {{\nentry:\n{entry}\n  br label %loop\n"
            f"loop:\n  %lane = phi i64 [ %first, %entry ], [ %next, %latch ]\n{test}"
            f"body:\n{body}\n  br label %latch\n"
            "latch:\n  %next = add nuw nsw i64 %lane, 1\n  %more = icmp slt i64 %next, %end\n"
            f"  br i1 %more, label %loop, label %exit, !llvm.loop {'!2' if mask is None else '!4'}\n"
            "exit:\n  ret void\n}\n"
        )

    def _with_inverses(self) -> Iterator[str]:
        """The instructions, with the inverse of a divisor that all lanes share, if it has no other use, as in XLA."""
        uses = Counter(operand for line in self._lines for operand in OPERAND.findall(line.rpartition(" = ")[2]))
        for line in self._lines:
            match = DIVISION.match(line)
            shared = match is not None and match["x"] in self._lane_values and match["y"] in self._shared_values
            if match is None or not shared or uses[match["y"]] > 1:
                yield line
                continue
            register, kind = match["register"], match["kind"]
            yield f"  {register}.inverse = fdiv {kind} 1.0, {match['y']}"
            yield f"  {register} = {FLOAT_OPS['mul']} {kind} {match['x']}, {register}.inverse"


def assemble(builders: dict[str, LlvmBuilder]) -> str:
    """One module of named functions."""
    return _module([builder.function(name) for name, builder in builders.items()])


def assemble_loops(loops: dict[str, tuple[LlvmBuilder, Scalar | None]], runs: dict[str, Sequence[str]]) -> str:
    """One module of loops over lanes, each with its mask, and exported functions that run some of them in turn."""
    parts = [builder.loop(name, mask) for name, (builder, mask) in loops.items()]
    needed = {"declare i64 @llvm.smin.i64(i64, i64)"}
    return _module([*parts, *((needed, _run(name, names)) for name, names in runs.items())]) + METADATA


def _module(parts: Sequence[tuple[set[str], str]]) -> str:
    declarations = {f"declare void @llvm.x86.sse.{register}mxcsr(ptr)" for register in ("st", "ld") if IS_X86}
    return "\n".join([*sorted(declarations.union(*(needed for needed, _ in parts))), *(text for _, text in parts)])


def _run(name: str, loops: Sequence[str]) -> str:
    """A function that takes `%steps` steps with the lanes from `%start` to `%stop`, block by block."""
    calls = "".join(f"  call void @{loop}.lanes({LANE_ARGUMENTS})\n" for loop in loops)
    inner = (
        f"define internal void @{name}.blocks(ptr %table, i64 %start, i64 %stop, i64 %steps) noinline {{\n"
        "entry:\n  br label %block\n"
        "block:\n  %first = phi i64 [ %start, %entry ], [ %following, %done ]\n"
        f"  %following = add i64 %first, {BLOCK}\n  %end = call i64 @llvm.smin.i64(i64 %following, i64 %stop)\n"
        "  br label %step\n"
        f"step:\n  %time = phi i64 [ 0, %block ], [ %later, %step ]\n{calls}"
        "  %later = add i64 %time, 1\n  %again = icmp slt i64 %later, %steps\n"
        "  br i1 %again, label %step, label %done\n"
        "done:\n  %more = icmp slt i64 %following, %stop\n  br i1 %more, label %block, label %exit\n"
        "exit:\n  ret void\n}\n"
    )
    arguments = "ptr %table, i64 %start, i64 %stop, i64 %steps"
    return inner + _export(name, arguments, f"  call void @{name}.blocks({arguments})\n")


def _export(name: str, arguments: str, call: str) -> str:
    if not IS_X86:
        return f"define void @{name}({arguments}) {{\n{call}  ret void\n}}\n"
    return (
        f"define void @{name}({arguments}) {{\n"
        "  %saved = alloca i32\n  %flush = alloca i32\n"
        "  call void @llvm.x86.sse.stmxcsr(ptr %saved)\n  %mode = load i32, ptr %saved\n"
        f"  %flushing = or i32 %mode, {FLUSH_DENORMALS}\n  store i32 %flushing, ptr %flush\n"
        "  call void @llvm.x86.sse.ldmxcsr(ptr %flush)\n"
        f"{call}"
        "  call void @llvm.x86.sse.ldmxcsr(ptr %saved)\n  ret void\n}\n"
    )


def type_of(dtype: DType) -> str:
    kind = TYPES.get(f"{dtype.kind}{dtype.itemsize}")
    if kind is None:
        raise Unsupported("dtype", f"{dtype.name} has no native form")
    return kind
