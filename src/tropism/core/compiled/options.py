"""Options of XLA's compiler for the CPU, where this version of XLA has them."""

from functools import cache
from typing import Any

import jax
import numpy as np

from tropism.core.compiled.program import host_device


@cache
def supported_options(**options: Any) -> dict[str, Any]:
    """The options, or none if this version of XLA lacks one, for which it raises when it compiles."""
    try:
        jax.jit(lambda x: x, compiler_options=options)(jax.device_put(np.float32(0), host_device()))
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def quick_options(level: int) -> dict[str, Any]:
    """For code that runs too briefly to be worth the time of optimising it; `level` 1 is for thousands of steps.

    The level affects the last bits of results. A GPU has no such options.
    """
    if jax.default_backend() != "cpu":
        return {}
    return supported_options(
        xla_backend_optimization_level=level,
        xla_cpu_use_fusion_emitters=False,
        xla_llvm_disable_expensive_passes=level == 0,
    )
