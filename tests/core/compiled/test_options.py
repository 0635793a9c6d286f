"""Compiler options are used only where XLA has them."""

import jax
import numpy as np

from tropism.core.compiled.options import quick_options, supported_options


def test_options_of_this_version_are_used():
    assert supported_options(xla_cpu_scheduler_type=1) == {"xla_cpu_scheduler_type": 1}
    assert quick_options(1)["xla_backend_optimization_level"] == 1
    assert float(jax.jit(lambda x: x + 1, compiler_options=quick_options(0))(np.float32(1))) == 2


def test_an_unknown_option_is_left_out_with_the_others():
    assert supported_options(xla_cpu_scheduler_type=1, xla_option_of_another_version=True) == {}
