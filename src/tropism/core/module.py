"""The base of states, params, spaces and environments."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax.core import Tracer

WIDTH = 100  # characters of a line
MOST_ENTRIES = 8  # of an array that is printed in full


class Module(eqx.Module):
    """An `equinox.Module` whose methods are plain methods.

    Equinox makes a pytree of a method whenever one is looked up, so that it may be passed to `jax.jit`. Ours
    may be too, because environments and spaces are hashable; and looking one up takes nothing.
    """

    __getattribute__ = object.__getattribute__

    def __str__(self) -> str:
        """Every field with its value, defaults included; `repr` is the short form."""
        return wl.pformat(self, width=WIDTH, hide_defaults=False, custom=_format_array)


def _format_array(value: Any) -> wl.AbstractDoc | None:
    """A small array by its numbers, a large one by its dtype and shape; None leaves the value to the printer."""
    if isinstance(value, Tracer) or not isinstance(value, jax.Array | np.ndarray | np.generic):
        return None
    if value.size > MOST_ENTRIES or jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return wl.TextDoc(f"{value.dtype}[{', '.join(map(str, value.shape))}]")
    text = np.array2string(np.asarray(value), precision=6, separator=", ", floatmode="maxprec")
    return wl.TextDoc(" ".join(text.split()))
