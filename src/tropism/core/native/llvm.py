"""The LLVM backend: emits LLVM assembly for the CPU."""

import platform
import struct
from typing import Any

import numpy as np

from tropism.core.native.builder import DType, Scalar, Unsupported

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
DIRECTIONS = {"eq": ("oeq", "eq"), "ne": ("une", "ne")}


class LlvmBuilder:
    """A scalar is its LLVM operand: the name of a register or the text of a constant."""

    functions: frozenset[str] = frozenset()
    batch_lane = None

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._registers: dict[str, str] = {}
        self._declarations: set[str] = set()
        self._count = 0

    def emit(self, text: str, pure: bool = True) -> Scalar:
        """The register that holds the result of an instruction; equal pure instructions share one."""
        if pure and text in self._registers:
            return self._registers[text]
        self._count += 1
        if self._count > MAX_INSTRUCTIONS:
            raise Unsupported("program", f"it takes more than {MAX_INSTRUCTIONS:,} instructions")
        register = f"%v{self._count}"
        self._lines.append(f"  {register} = {text}")
        if pure:
            self._registers[text] = register
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
        return self.emit(f"alloca [{items} x {type_of(dtype)}], align 16", pure=False)

    def load(self, pointer: Scalar, dtype: DType, index: Scalar) -> Scalar:
        kind = type_of(dtype)
        if kind == "i1":
            return self.emit(f"trunc i8 {self.load(pointer, np.dtype(np.uint8), index)} to i1")
        address = self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {index}")
        return self.emit(f"load {kind}, ptr {address}, align {min(dtype.itemsize, 4)}", pure=False)

    def store(self, pointer: Scalar, dtype: DType, index: Scalar, value: Scalar) -> None:
        kind = type_of(dtype)
        if kind == "i1":
            byte = np.dtype(np.uint8)
            return self.store(pointer, byte, index, self.convert(value, dtype, byte))
        address = self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {index}")
        self._lines.append(f"  store {kind} {value}, ptr {address}, align {min(dtype.itemsize, 4)}")
        return None

    def load_pointer(self, index: int) -> Scalar:
        """Entry `index` of the table of pointers."""
        address = self.emit(f"getelementptr ptr, ptr %table, i64 {index}")
        return self.emit(f"load ptr, ptr {address}")

    def function(self, name: str) -> tuple[set[str], str]:
        """Declarations and the assembly of a function of `%table`, a table of pointers, with what was emitted."""
        body = "\n".join(self._lines)
        inner = f"define internal void @{name}.body(ptr %table) noinline {{\n{body}\n  ret void\n}}\n"
        return self._declarations, f"{inner}define void @{name}(ptr %table) {{\n{_entry(name)}  ret void\n}}\n"


def assemble(builders: dict[str, LlvmBuilder]) -> str:
    """One module of named functions."""
    declarations = {f"declare void @llvm.x86.sse.{register}mxcsr(ptr)" for register in ("st", "ld") if IS_X86}
    functions: list[str] = []
    for name, builder in builders.items():
        needed, text = builder.function(name)
        declarations |= needed
        functions.append(text)
    return "\n".join([*sorted(declarations), *functions])


def _entry(name: str) -> str:
    call = f"  call void @{name}.body(ptr %table)\n"
    if not IS_X86:
        return call
    return (
        "  %saved = alloca i32\n  %flush = alloca i32\n"
        "  call void @llvm.x86.sse.stmxcsr(ptr %saved)\n  %mode = load i32, ptr %saved\n"
        f"  %flushing = or i32 %mode, {FLUSH_DENORMALS}\n  store i32 %flushing, ptr %flush\n"
        "  call void @llvm.x86.sse.ldmxcsr(ptr %flush)\n"
        f"{call}"
        "  call void @llvm.x86.sse.ldmxcsr(ptr %saved)\n"
    )


def type_of(dtype: DType) -> str:
    kind = TYPES.get(f"{dtype.kind}{dtype.itemsize}")
    if kind is None:
        raise Unsupported("dtype", f"{dtype.name} has no native form")
    return kind
