"""Spaces of real arrays: Box and Image."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.core.spaces.space import Space, array_schema, as_array, check_count, is_integer, is_traced, tuple_schema
from tropism.errors import ValidationError

ROUNDING_ULPS = 4  # tolerance for a cast action outside its bounds
LONGEST_LISTED = 64  # entries whose bounds a schema lists individually


class Box(Space):
    """Real arrays between `low` and `high`, inclusive; an infinite bound means unbounded."""

    low: Any
    high: Any
    shape_: tuple[int, ...] = eqx.field(static=True)
    dtype_: np.dtype[Any] = eqx.field(static=True)

    def __init__(self, low: Any, high: Any, shape: Any = None, dtype: Any = np.float32):
        self.dtype_ = _real_dtype(dtype)
        self.shape_ = _shape_of(low, high, shape)
        self.low = _bound("low", low, self.shape_, self.dtype_)
        self.high = _bound("high", high, self.shape_, self.dtype_)
        if not is_traced(self.low, self.high) and not np.all(
            np.less_equal(_source_values(self.low), _source_values(self.high))
        ):
            raise ValidationError("low", low, f"at most high, {high!r}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shape_

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.dtype_

    def sample(self, key: Any, shape: tuple[int, ...] = ()) -> Any:
        """Uniform between two bounds, exponential from one, normal without bounds (as in Gymnasium)."""
        full = shape + self.shape
        bounds = self._device_bounds()
        low, high = jnp.asarray(bounds[0]), jnp.asarray(bounds[1])
        if self.dtype.kind in "iu":
            return _sample_integers(key, low, high, full)
        if is_traced(self.low, self.high):
            return _sample_reals(key, low, high, full)
        if np.isfinite(_source_values(self.low)).all() and np.isfinite(_source_values(self.high)).all():
            drawn = _between(random.uniform(key, full, low.dtype), low, high)
        else:
            drawn = _sample_reals(key, low, high, full)
        return (
            jnp.where(_is_subnormal(bounds[0]), low, drawn) if _is_subnormal(_source_values(bounds[0])).any() else drawn
        )

    def _device_bounds(self) -> tuple[Any, Any]:
        """The bounds in the dtype that JAX computes in, rounded inwards."""
        dtype = jax.dtypes.canonicalize_dtype(self.dtype)
        low, high = self.low, self.high
        if is_traced(low, high):
            return low, high
        if dtype != self.dtype:
            low, high = _narrow(low, dtype, up=True), _narrow(high, dtype, up=False)
            if not np.all((self.low <= low) & (low <= high) & (high <= self.high)):
                expected = f"a box with members in {dtype}, the widest that JAX has without jax_enable_x64"
                raise ValidationError("dtype", self.dtype, expected)
        return (low, high) if dtype.kind in "iu" else _without_subnormals(low, high)

    def contains(self, x: Any) -> Any:
        if is_traced(x):
            if x.shape != self.shape or not jnp.issubdtype(x.dtype, np.number) or not np.can_cast(x.dtype, self.dtype):
                return False
            return jnp.all((x >= self.low) & (x <= self.high))
        array = as_array(x)
        if array is None or array.shape != self.shape or not self._accepts_dtype(x, array):
            return False
        inside = (array >= self.low) & (array <= self.high)
        return jnp.all(inside) if is_traced(inside) else bool(np.all(inside))

    def _accepts_dtype(self, x: Any, array: NDArray[Any]) -> bool:
        if isinstance(x, int | float | list | tuple) and not isinstance(x, bool):
            return np.can_cast(array.dtype, self.dtype, "same_kind") and array.dtype.kind != "b"
        return array.dtype.kind != "b" and np.can_cast(array.dtype, self.dtype)

    def coerce(self, x: Any, name: str = "action") -> NDArray[Any]:
        """Cast any real dtype; NaN, and values outside the bounds by more than rounding, are rejected."""
        array = None if is_traced(x) else as_array(x)
        kinds = "iu" if self.dtype.kind in "iu" else "iuf"
        if array is None or array.shape != self.shape or array.dtype.kind not in kinds:
            raise ValidationError(name, x, f"an array of shape {self.shape} in {self!r}")
        if self.dtype.kind in "iu":
            inside = (array >= self.low) & (array <= self.high)
        else:
            size = np.where(np.isfinite(array), np.maximum(1, np.abs(array)), 0)  # infinity is not a rounding error
            slack = ROUNDING_ULPS * np.finfo(self.dtype).eps * size
            inside = (array >= self.low - slack) & (array <= self.high + slack)
        if not inside.all():
            raise ValidationError(name, x, f"values within {self!r}")
        return np.asarray(np.clip(array.astype(self.dtype), self.low, self.high))

    def json_schema(self) -> dict[str, Any]:
        """Has bounds if one number bounds every entry, or if the space is a short vector."""
        low, high = _digest(self.low), _digest(self.high)
        uniform = all(isinstance(bound, int | float) for bound in (low, high))
        if not uniform and len(self.shape) == 1 and self.shape[0] <= LONGEST_LISTED:
            bounds = zip(self.low.tolist(), self.high.tolist(), strict=True)
            return tuple_schema([self._entry_schema(*each) for each in bounds])
        return array_schema(self._entry_schema(low, high), self.shape)

    def _entry_schema(self, low: Any, high: Any) -> dict[str, Any]:
        bounds = {"minimum": low, "maximum": high}
        finite = {word: x for word, x in bounds.items() if isinstance(x, int | float) and np.isfinite(x)}
        return {"type": "integer" if self.dtype.kind in "iu" else "number", **finite}

    def identity(self) -> tuple[Any, ...]:
        return self.shape_, self.dtype_.str, _digest(self.low), _digest(self.high)

    def __repr__(self) -> str:
        return f"Box({_format_bound(self.low)}, {_format_bound(self.high)}, {self.shape_}, {self.dtype_.name})"


class Image(Box):
    """Images: `height` × `width` × `channels` bytes."""

    def __init__(self, height: Any, width: Any, channels: Any = 3):
        sizes = (("height", height), ("width", width), ("channels", channels))
        super().__init__(0, 255, tuple(check_count(name, size) for name, size in sizes), np.uint8)

    def __repr__(self) -> str:
        return f"Image{self.shape_}"


def _real_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        result = np.dtype(dtype)
    except TypeError:
        raise ValidationError("dtype", dtype, "a NumPy dtype such as float32") from None
    if result.kind not in "iuf":
        raise ValidationError("dtype", dtype, "a real or integer dtype")
    return result


def _shape_of(low: Any, high: Any, shape: Any) -> tuple[int, ...]:
    bound_shapes = {np.shape(bound) for bound in (low, high)} - {()}
    if shape is None:
        if len(bound_shapes) > 1:
            raise ValidationError("high", high, f"the shape of low, {np.shape(low)}")
        return bound_shapes.pop() if bound_shapes else ()
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if not all(is_integer(size) and int(size) >= 0 for size in sizes):
        raise ValidationError("shape", shape, "a tuple of whole numbers")
    sizes = tuple(int(size) for size in sizes)
    for name, bound in (("low", low), ("high", high)):
        if np.shape(bound) not in ((), sizes):
            raise ValidationError(name, bound, f"a number or an array of shape {sizes}")
    return sizes


def _bound(name: str, bound: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    if is_traced(bound):
        return jnp.broadcast_to(bound, shape).astype(jax.dtypes.canonicalize_dtype(dtype))
    array = as_array(bound)
    if array is None or np.isnan(array.astype(np.float64)).any():
        raise ValidationError(name, bound, "a real number or an array of them, not NaN")
    # Broadcast after the cast, so that a large box stores only two numbers.
    return np.broadcast_to(_to_integers(array, dtype) if dtype.kind in "iu" else array.astype(dtype), shape)


def _to_integers(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Cast to an integer dtype; values outside its range, and infinity, become its limits."""
    limits = np.iinfo(dtype)
    above, below = array >= limits.max, array <= limits.min  # np.clip would be wrong: 2**63 - 1 is not a float
    inside = np.where(above | below, 0, array).astype(dtype)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(dtype)


def _narrow(bound: NDArray[Any], dtype: np.dtype[Any], up: bool) -> NDArray[Any]:
    """A bound in a narrower dtype, rounded up or down."""
    if dtype.kind in "iu":
        return _to_integers(bound, dtype)
    with np.errstate(over="ignore"):
        near = bound.astype(dtype)
    outside = near < bound if up else near > bound
    return np.where(outside, np.nextafter(near, dtype.type(np.inf if up else -np.inf)), near)


def _without_subnormals(low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The nearest normal bounds inside, since XLA flushes subnormals to zero; if there are none, `low` twice."""
    if not (_is_subnormal(_source_values(low)).any() or _is_subnormal(_source_values(high)).any()):
        return low, high
    tiny = jnp.finfo(low.dtype).tiny
    above = np.where(_is_subnormal(low), np.where(low > 0, tiny, 0), low).astype(low.dtype)
    below = np.where(_is_subnormal(high), np.where(high < 0, -tiny, 0), high).astype(low.dtype)
    empty = above > below
    return np.where(empty, low, above), np.where(empty, low, below)


def _is_subnormal(bound: Any) -> Any:
    return (bound != 0) & (np.abs(bound) < jnp.finfo(bound.dtype).tiny)


def _source_values(bound: Any) -> Any:
    """The values that a bound was broadcast from."""
    return bound[tuple(0 if stride == 0 else slice(None) for stride in bound.strides)] if bound.size else bound


def _digest(bound: Any) -> Any:
    values = np.asarray(_source_values(bound))
    return values.flat[0].item() if values.size and (values == values.flat[0]).all() else bound.tobytes()


def _format_bound(bound: Any) -> str:
    if is_traced(bound):
        return "traced"
    values = np.asarray(_source_values(bound))
    if values.size and (values == values.flat[0]).all():
        return str(values.flat[0])
    return np.array2string(values, precision=4, threshold=8, separator=", ").replace("\n", "")


def _between(u: Any, low: Any, high: Any) -> Any:
    # Two products, because high - low overflows for bounds near the largest float.
    return jnp.clip(low * (1 - u) + high * u, low, high)


def _sample_reals(key: Any, low: Any, high: Any, shape: tuple[int, ...]) -> Any:
    """Samples between bounds of which any may be infinite."""
    uniform_key, exponential_key, normal_key = random.split(key, 3)
    below, above = jnp.isfinite(low), jnp.isfinite(high)
    safe_low, safe_high = jnp.where(below, low, 0), jnp.where(above, high, 0)
    inside = _between(random.uniform(uniform_key, shape, low.dtype), safe_low, safe_high)
    tail = random.exponential(exponential_key, shape, low.dtype)
    free = random.normal(normal_key, shape, low.dtype)
    one_sided = jnp.where(below, safe_low + tail, jnp.where(above, safe_high - tail, free))
    return jnp.clip(jnp.where(below & above, inside, one_sided), low, high)


def _sample_integers(key: Any, low: Any, high: Any, shape: tuple[int, ...]) -> Any:
    wide = jnp.uint64 if low.dtype.itemsize == 8 else jnp.uint32
    bits = random.bits(key, shape, wide)
    span = high.astype(wide) - low.astype(wide)
    full_range = ~span == 0
    offset = jnp.where(full_range, bits, bits % jnp.where(full_range, 1, span + 1))
    return (low.astype(wide) + offset).astype(low.dtype)
