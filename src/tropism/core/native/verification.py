"""The seed, the actions and the first difference of a comparison of native code with XLA."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tropism.core.compiled.packing import Layout
from tropism.core.spaces import Discrete, Space

FIRST_SEED = 2**40 + 1


def first_difference(layout: Layout, words: NDArray[Any], others: NDArray[Any]) -> str:
    """The path of the first leaf that differs between two packed buffers; empty if all bits are equal."""
    if words.tobytes() == others.tobytes():
        return ""
    word = int(np.flatnonzero(words != others)[0])
    paths = zip(layout.signature, layout.slots, strict=True)
    return next(path for path, slot in paths if word < slot.start + slot.words)


def sample_actions(space: Space, count: int) -> list[Any]:
    """Members of the space, as a session passes them to the step."""
    if isinstance(space, Discrete):
        drawn = np.random.default_rng(1).integers(space.start, space.start + space.n, count)
        return list(drawn.astype(np.int32))
    batch = jax.tree.map(np.asarray, space.sample(jax.random.key(0), (count,)))
    return [space.coerce(jax.tree.map(lambda leaf, number=number: leaf[number], batch)) for number in range(count)]
