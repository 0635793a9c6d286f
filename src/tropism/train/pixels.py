"""Image observations: which spaces are images, and the convolutions that encode them."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import nn
from jaxtyping import Array, Float

from tropism.core.module import Module
from tropism.core.spaces import Box, Space
from tropism.core.spaces.composite import leaf_spaces
from tropism.core.spaces.space import is_traced
from tropism.train.linear import Linear

MAX_SIDE = 6  # pixels: convolutions shrink an image until no side is longer
LARGE_SIDE = 24  # pixels: from this size on a layer shrinks fourfold, below twofold
CHANNELS = (16, 32)  # of the first layer, and of the others


def is_image(space: Space) -> bool:
    """A uint8 Box with three axes, (height, width, channels); four with stacked frames; two if its range is 0 to 255.

    Two axes with a smaller range are more likely a board than an image.
    """
    if not isinstance(space, Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) in (3, 4) or (len(space.shape) == 2 and max_pixel(space) == 255)


def has_image(space: Space) -> bool:
    """Whether the space is an image, or a Dict or Tuple that contains one."""
    return any(is_image(part) for part in leaf_spaces(space))


def has_uint8(space: Space) -> bool:
    """Whether the space may contain an image; shapes and dtypes alone do not decide it."""
    return any(isinstance(part, Box) and part.dtype == np.uint8 for part in leaf_spaces(space))


def max_pixel(space: Box) -> int:
    """The largest pixel value; 255 if the bounds are traced."""
    return 255 if is_traced(space.high) else int(np.max(space.high, initial=1))


class ConvLayer(Module):
    """A strided square convolution as one matrix product over patches: XLA's convolution is slow to train on a CPU."""

    linear: Linear
    size: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, normals: Float[Array, "out inputs"], size: int, stride: int):
        self.linear = Linear(normals, 2**0.5)
        self.size = size
        self.stride = stride

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "height_out width_out out"]:
        return nn.relu(self.linear(patches(x, self.size, self.stride)))


def patches(x: Float[Array, "height width in"], size: int, stride: int) -> Float[Array, "rows columns inputs"]:
    """Square patches, `stride` apart, as vectors; the image is zero-padded so that they cover all of it."""
    rows, columns = (math.ceil(side / stride) for side in x.shape[:2])
    missing = [(count - 1) * stride + size - side for count, side in zip((rows, columns), x.shape[:2], strict=True)]
    x = jnp.pad(x, (*((each // 2, each - each // 2) for each in missing), (0, 0)))
    if size == stride:
        x = x.reshape(rows, size, columns, size, -1)
        return x.transpose(0, 2, 1, 3, 4).reshape(rows, columns, -1)
    last = (rows - 1) * stride + 1, (columns - 1) * stride + 1
    shifted = [x[i : i + last[0] : stride, j : j + last[1] : stride] for i in range(size) for j in range(size)]
    return jnp.concatenate(shifted, -1)


class ConvEncoder(Module):
    """Convolutions from an image to a feature vector; pixels are scaled to 0..1."""

    layers: tuple[ConvLayer, ...]
    scale: int = eqx.field(static=True)

    def __init__(self, space: Box, normals: list[Any]):
        layers = zip(normals, plan_convolutions(space.shape).layers, strict=True)
        self.layers = tuple(ConvLayer(each, size, stride) for each, (_, size, stride) in layers)
        self.scale = max_pixel(space)

    def __call__(self, image: Any) -> Float[Array, " features"]:
        x = channels_last(jnp.asarray(image)).astype(jnp.float32) / self.scale
        for layer in self.layers:
            x = layer(x)
        return x.ravel()


def channels_last(image: Any) -> Any:
    """(height, width, channels); stacked frames become channels."""
    if image.ndim == 2:
        return image[..., None]
    if image.ndim == 4:  # frames, height, width, channels
        return jnp.moveaxis(image, 0, 2).reshape(*image.shape[1:3], -1)
    are_frames = image.shape[0] < min(image.shape[1:])  # stacked grey frames, (frames, height, width)
    return jnp.moveaxis(image, 0, 2) if are_frames else image


class ConvPlan(NamedTuple):
    """The convolutions for images of one shape."""

    layers: tuple[tuple[tuple[int, int], int, int], ...]  # ((channels out, inputs), size, stride) of each
    features: int


def plan_convolutions(shape: tuple[int, ...]) -> ConvPlan:
    height, width, channels = jax.eval_shape(channels_last, jax.ShapeDtypeStruct(shape, jnp.uint8)).shape
    layers: list[tuple[tuple[int, int], int, int]] = []
    while max(height, width) > MAX_SIDE or not layers:
        side = max(height, width)
        size, stride = (4, 4) if side >= LARGE_SIDE else (3, 2 if side > MAX_SIDE else 1)
        out = CHANNELS[min(len(layers), 1)]
        layers.append(((out, channels * size**2), size, stride))
        height, width, channels = math.ceil(height / stride), math.ceil(width / stride), out
    return ConvPlan(tuple(layers), height * width * channels)
