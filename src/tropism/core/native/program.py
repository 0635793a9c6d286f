"""The native form of an environment's program: step and reset, on the packed buffer of the compiled one."""

import os
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tropism.core.compiled.packing import Layout
from tropism.core.compiled.program import Program
from tropism.core.episode import next_episode_key
from tropism.core.native.builder import INDEX, StridedView, Unsupported
from tropism.core.native.jit import Library, platform_identity
from tropism.core.native.llvm import LlvmBuilder, assemble
from tropism.core.native.rules import FAMILIES
from tropism.core.native.scalarize import evaluate, load_all, row_strides
from tropism.core.spaces import Discrete, Space

BUFFER, INPUT, PARAMS = 0, 1, 2  # entries of the table of pointers; large arrays of params follow
KEY_WORDS = 2
SUPPORTED = FAMILIES  # families of primitives; importing them registers their rules
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class NativeProgram:
    """Machine code that reads and writes through a table of pointers: buffer, input, params.

    The input is the packed action of a step, or the key of a reset. Params are read at run time, so a new value
    does not recompile. Where only the step can be compiled, `reset` is None and `reset_reason` says why.
    """

    def __init__(self, program: Program, space: Space):
        self.program = program
        self.action_layout = Layout(action_struct(space))
        self._texts: list[str] = []
        buffer, shapes = jax.ShapeDtypeStruct((program.layout.size,), jnp.uint32), program.params_layout.shapes()
        action = jax.ShapeDtypeStruct((self.action_layout.size,), jnp.uint32)
        key = jax.ShapeDtypeStruct((KEY_WORDS,), jnp.uint32)
        builders = {
            "step": self._emit(self._step, BUFFER, buffer, action, *shapes),
            "next_key": self._emit(lambda buffer, _: next_episode_key(buffer[:KEY_WORDS]), INPUT, buffer, key),
        }
        self.reset_reason = ""
        try:
            builders["reset"] = self._emit(self._reset, BUFFER, buffer, key, *shapes)
        except Unsupported as error:
            self.reset_reason = str(error)
        assembly = assemble(builders)
        library = Library(assembly)
        self.step = library.function("step")
        self.next_key = library.function("next_key")
        self.reset = None if self.reset_reason else library.function("reset")
        self.digest = digest(*self._texts, assembly)

    def _step(self, buffer: Any, action: Any, *params: Any) -> Any:
        return self.program.pure_step(buffer, self.action_layout.unpack(action), params)

    def _reset(self, _: Any, key: Any, *params: Any) -> Any:
        return self.program.pure_reset(key, params)

    def _emit(self, function: Callable[..., Any], target: int, *structs: jax.ShapeDtypeStruct) -> LlvmBuilder:
        closed = jax.make_jaxpr(function)(*structs)
        self._texts.append(ADDRESS.sub("", str(closed)))
        return emit(closed, [target])


def emit(closed: Any, targets: Sequence[int]) -> LlvmBuilder:
    """Emit a closed jaxpr: argument i is read through pointer i of the table, results are stored at `targets`."""
    b = LlvmBuilder()
    inputs: list[StridedView] = []
    for position, var in enumerate(closed.jaxpr.invars):
        shape = tuple(var.aval.shape)
        inputs.append(StridedView(b.load_pointer(position), np.dtype(var.aval.dtype), shape, row_strides(shape)))
    results = [load_all(b, result) for result in evaluate(b, closed.jaxpr, closed.consts, inputs)]
    for target, result, var in zip(targets, results, closed.jaxpr.outvars, strict=True):
        pointer = b.load_pointer(target)
        for index, item in enumerate(result.reshape(-1)):
            b.store(pointer, np.dtype(var.aval.dtype), b.constant(index, INDEX), item)
    return b


def action_struct(space: Space) -> Any:
    if isinstance(space, Discrete):
        return jax.ShapeDtypeStruct((), jnp.int32)
    return jax.eval_shape(lambda: space.sample(jax.random.key(0)))


def digest(*texts: str) -> str:
    """Identifies a program together with the compilers and the CPU, which decide its bits."""
    context = metadata.version("jaxlib"), os.environ.get("XLA_FLAGS", ""), platform_identity()
    return blake2b("\0".join((*texts, *context)).encode(), digest_size=16).hexdigest()
