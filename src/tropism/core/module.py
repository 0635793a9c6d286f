"""The base class of states, params, spaces and environments."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax.core import Tracer

WIDTH = 100  # characters per line
MAX_ENTRIES = 8  # of an array printed in full


class Module(eqx.Module):
    """An `equinox.Module` whose methods are plain methods.

    Equinox wraps a method in a pytree at every lookup, so that it can be passed to `jax.jit`. Environments and
    spaces are hashable, so their plain methods can be passed too, without the cost of the wrapper.
    """

    __getattribute__ = object.__getattribute__

    def __str__(self) -> str:
        """Every field with its value, defaults included; `repr` is the short form."""
        return wl.pformat(self, width=WIDTH, hide_defaults=False, custom=_format_array)


def _format_array(value: Any) -> wl.AbstractDoc | None:
    """The numbers of a small array, dtype and shape of a large one; None for other values."""
    if isinstance(value, Tracer) or not isinstance(value, jax.Array | np.ndarray | np.generic):
        return None
    if value.size > MAX_ENTRIES or jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return wl.TextDoc(f"{value.dtype}[{', '.join(map(str, value.shape))}]")
    text = np.array2string(np.asarray(value), precision=6, separator=", ", floatmode="maxprec")
    return wl.TextDoc(" ".join(text.split()))
