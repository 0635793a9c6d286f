"""Compiles LLVM assembly to functions of this process with llvmlite, an optional extra."""

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module, metadata
from typing import Any

from tropism.core.native.builder import Unsupported

try:
    llvm: Any = import_module("llvmlite.binding")
except ImportError:
    llvm = None

# Those of a standard pipeline that change straight-line code, in its order, without SLP vectorising: it changes bits.
PASSES = ("sroa", "new_gvn", "instruction_combine", "reassociate", "instruction_combine", "aggressive_dce")
MAX_VECTORIZED = 10_000  # lines; longer loops take LLVM more than ten seconds
LONG = 4_000  # lines; the code generator is quadratic in the length of a function, and slower than what it gains


def available() -> bool:
    """Whether llvmlite is installed."""
    return llvm is not None


@cache
def platform_identity() -> str:
    """What decides the bits of compiled code: the compiler, the CPU and its features."""
    cpu = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    return f"llvmlite {metadata.version('llvmlite')} with {PASSES} on {cpu}"


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


class Library:
    """Compiled functions of a pointer table; the machine code is freed with this object."""

    def __init__(self, assembly: str, vectorize: bool = False):
        if vectorize and assembly.count("\n") > MAX_VECTORIZED:
            raise Unsupported("program", f"its loops take more than {MAX_VECTORIZED:,} lines of assembly")
        _initialize()
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        level = 3 if assembly.count("\n") < LONG else 1
        machine = llvm.Target.from_default_triple().create_target_machine(cpu, features, opt=level, jit=True)
        module = llvm.parse_assembly(assembly)
        self._optimize(module, machine, vectorize)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def _optimize(self, module: Any, machine: Any, vectorize: bool) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization, options.slp_vectorization, options.loop_unrolling = True, False, False
        builder = llvm.create_pass_builder(machine, options)
        passes = llvm.create_new_module_pass_manager()
        for name in PASSES:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, builder)
        if vectorize:
            builder.getModulePassManager().run(module, builder)

    def function(self, name: str) -> Callable[[int], None]:
        """The function `name`; it takes the address of a pointer table and keeps the interpreter's lock."""
        return self._callable(ctypes.PYFUNCTYPE(None, ctypes.c_void_p), name)

    def loop(self, name: str) -> Callable[[int, int, int, int], None]:
        """The function `name` of a table, the first lane, the end and the number of steps; it releases the lock."""
        integer = ctypes.c_ssize_t
        return self._callable(ctypes.CFUNCTYPE(None, ctypes.c_void_p, integer, integer, integer), name)

    def _callable(self, prototype: Any, name: str) -> Any:
        function = prototype(self._engine.get_function_address(name))
        function.library = self  # keeps the code in memory
        return function
