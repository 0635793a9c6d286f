"""The base of states, params, spaces and environments."""

import equinox as eqx


class Module(eqx.Module):
    """An `equinox.Module` whose methods are plain methods.

    Equinox makes a pytree of a method whenever one is looked up, so that it may be passed to `jax.jit`. Ours
    may be too, because environments and spaces are hashable; and looking one up takes nothing.
    """

    __getattribute__ = object.__getattribute__
