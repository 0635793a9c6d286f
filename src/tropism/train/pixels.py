"""Pictures as inputs: which observations are pictures, and the convolutions that read them."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import nn
from jaxtyping import Array, Float

from tropism.core.module import Module
from tropism.core.spaces import Box, Dict, Space, Tuple
from tropism.core.spaces.space import is_traced
from tropism.train.linear import Linear

SIDE = 6  # pixels: convolutions shrink a picture until no side is longer
LARGE = 24  # pixels: from here on a layer shrinks fourfold, below twofold
CHANNELS = (16, 32)  # of the first layer, and of the others


def is_picture(space: Space) -> bool:
    """A uint8 Box with three axes, (height, width, channels); four with stacked frames; two if its range is 0 to 255.

    Two axes of a smaller range are more likely a board than a picture.
    """
    if not isinstance(space, Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) in (3, 4) or (len(space.shape) == 2 and highest(space) == 255)


def has_picture(space: Space) -> bool:
    """Whether the space is a picture, or a Dict or Tuple with one in it."""
    return any(is_picture(part) for part in _parts(space))


def has_bytes(space: Space) -> bool:
    """Whether there may be a picture, which shapes alone do not tell."""
    return any(isinstance(part, Box) and part.dtype == np.uint8 for part in _parts(space))


def _parts(space: Space) -> list[Space]:
    if isinstance(space, Dict):
        return [each for part in space.spaces.values() for each in _parts(part)]
    if isinstance(space, Tuple):
        return [each for part in space.spaces for each in _parts(part)]
    return [space]


def highest(space: Box) -> int:
    """The largest value of a pixel; 255 where the bounds are not known while tracing."""
    return 255 if is_traced(space.high) else int(np.max(space.high, initial=1))


class Layer(Module):
    """A square convolution with a stride, as one product with all patches: XLA's own is slow to train on a CPU."""

    linear: Linear
    size: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, drawn: Float[Array, "out inputs"], size: int, stride: int):
        self.linear = Linear(drawn, 2**0.5)
        self.size = size
        self.stride = stride

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "height_out width_out out"]:
        return nn.relu(self.linear(patches(x, self.size, self.stride)))


def patches(x: Float[Array, "height width in"], size: int, stride: int) -> Float[Array, "rows columns inputs"]:
    """Squares of pixels, `stride` apart, as vectors; the picture is padded with zeros so that they cover all of it."""
    rows, columns = (math.ceil(side / stride) for side in x.shape[:2])
    missing = [(count - 1) * stride + size - side for count, side in zip((rows, columns), x.shape[:2], strict=True)]
    x = jnp.pad(x, (*((each // 2, each - each // 2) for each in missing), (0, 0)))
    if size == stride:
        x = x.reshape(rows, size, columns, size, -1)
        return x.transpose(0, 2, 1, 3, 4).reshape(rows, columns, -1)
    last = (rows - 1) * stride + 1, (columns - 1) * stride + 1
    shifted = [x[i : i + last[0] : stride, j : j + last[1] : stride] for i in range(size) for j in range(size)]
    return jnp.concatenate(shifted, -1)


class Pixels(Module):
    """Convolutions from a picture to a vector of features; pixels are scaled to 0..1."""

    layers: tuple[Layer, ...]
    highest: int = eqx.field(static=True)

    def __init__(self, space: Box, drawn: list[Any]):
        plan = convolutions(space.shape).layers
        self.layers = tuple(Layer(each, size, stride) for each, (_, size, stride) in zip(drawn, plan, strict=True))
        self.highest = highest(space)

    def __call__(self, picture: Any) -> Float[Array, " features"]:
        x = channels_last(jnp.asarray(picture)).astype(jnp.float32) / self.highest
        for layer in self.layers:
            x = layer(x)
        return x.ravel()


def channels_last(picture: Any) -> Any:
    """(height, width, channels); stacked frames become channels."""
    if picture.ndim == 2:
        return picture[..., None]
    if picture.ndim == 4:  # frames, height, width, channels
        return jnp.moveaxis(picture, 0, 2).reshape(*picture.shape[1:3], -1)
    return jnp.moveaxis(picture, 0, 2) if _are_frames_first(picture.shape) else picture


def _are_frames_first(shape: tuple[int, ...]) -> bool:
    """Stacked grey frames, (frames, height, width): fewer than there are pixels on a side."""
    return shape[0] < min(shape[1:])


def _sides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 2:
        return (*shape, 1)
    if len(shape) == 4:
        return shape[1], shape[2], shape[0] * shape[3]
    return (shape[1], shape[2], shape[0]) if _are_frames_first(shape) else (shape[0], shape[1], shape[2])


class Plan(NamedTuple):
    """The convolutions for pictures of one shape."""

    layers: tuple[tuple[tuple[int, int], int, int], ...]  # ((channels out, inputs), size, stride) of each
    features: int


def convolutions(shape: tuple[int, ...]) -> Plan:
    height, width, channels = _sides(shape)
    layers: list[tuple[tuple[int, int], int, int]] = []
    while max(height, width) > SIDE or not layers:
        side = max(height, width)
        size, stride = (4, 4) if side >= LARGE else (3, 2 if side > SIDE else 1)
        out = CHANNELS[min(len(layers), 1)]
        layers.append(((out, channels * size**2), size, stride))
        height, width, channels = math.ceil(height / stride), math.ceil(width / stride), out
    return Plan(tuple(layers), height * width * channels)
