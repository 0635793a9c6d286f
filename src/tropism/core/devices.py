"""Spreads the environments of a batch over several devices, by JAX's sharding."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tropism.errors import ValidationError

AXIS = "lanes"  # of the mesh; a lane is one environment of a batch


@contextmanager
def use_devices(devices: Any) -> Generator[int]:
    """Spread batches inside the block over `devices`, and give their number.

    "all" is every device that JAX sees, those of other hosts included after `jax.distributed.initialize()`; a list has
    some of them; None changes nothing.
    """
    if devices is None:
        yield num_devices()
        return
    chosen = _choose_devices(devices)
    with jax.set_mesh(Mesh(np.array(chosen), (AXIS,), axis_types=(AxisType.Auto,))):
        yield len(chosen)


def _choose_devices(devices: Any) -> list[Any]:
    if isinstance(devices, str) and devices == "all":
        return jax.devices()
    if isinstance(devices, list | tuple) and devices and all(isinstance(each, jax.Device) for each in devices):
        return list(devices)
    raise ValidationError("devices", devices, '"all", or a list of JAX devices')


def num_devices() -> int:
    """Over how many devices batches are spread here."""
    return jax.sharding.get_abstract_mesh().shape.get(AXIS, 1)


def check_divisible(name: str, size: int) -> None:
    if size % num_devices():
        raise ValidationError(name, size, f"a multiple of {num_devices()}, the number of devices")


def split_lanes(tree: Any, axis: int = 0) -> Any:
    """Place arrays so that each device has an equal part of `axis`; those that cannot be divided stay as they are."""

    def split(leaf: Any) -> Any:
        if leaf.ndim <= axis or leaf.shape[axis] % num_devices():
            return leaf
        return jax.lax.with_sharding_constraint(leaf, P(*[None] * axis, AXIS))

    return tree if num_devices() == 1 else jax.tree.map(split, tree)


def replicate(tree: Any) -> Any:
    """Place arrays so that each device has all of them."""
    if num_devices() == 1:
        return tree
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, P()), tree)


def map_on_devices(function: Callable[..., Any], *batches: Any, out_axes: Any = 0) -> Any:
    """Call a function of batches on each device, with its part; the parts do not communicate.

    `out_axes` are the axes of the results along which parts are joined, as in `jax.vmap`.
    """
    if num_devices() == 1:
        return function(*batches)
    specs = jax.tree.map(lambda axis: P(*[None] * axis, AXIS), out_axes)
    return jax.shard_map(function, in_specs=P(AXIS), out_specs=specs, check_vma=False)(*batches)


def to_host(tree: Any) -> Any:
    """NumPy arrays, whole on every host."""

    def fetch(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return np.asarray(leaf)
        everywhere = NamedSharding(leaf.sharding.mesh, P())  # pyright: ignore[reportAttributeAccessIssue]
        return np.asarray(jax.jit(jnp.copy, out_shardings=everywhere)(leaf))

    return jax.tree.map(fetch, tree)
