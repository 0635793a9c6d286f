"""Recorded plumes on disk: NumPy, HDF5 and Zarr files of frames (time, y, x), and a small synthetic one."""

import hashlib
import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpy.typing import NDArray

from tropism.errors import ValidationError, require_extra
from tropism.plume import checks
from tropism.plume.fields.meander import Meander
from tropism.plume.fields.movie import Movie
from tropism.plume.wind import Constant, Wind

CHUNK = 64  # frames read at once
METADATA = ("pixel_size", "frame_rate", "source_pixel")


@dataclass(frozen=True, eq=False)
class PlumeRecording:
    """Frames and their metadata; compared and hashed by content, so an environment can hold it.

    The frames of a `.npy` file stay on disk until `field` puts them on the device.
    """

    frames: NDArray[Any]
    pixel_size: float | int  # length units
    frame_rate: float | int  # frames/s
    source_pixel: tuple[float | int, float | int]  # (row, column)
    wind: tuple[float | int, float | int] = (0.0, 0.0)  # length units/s, (x, y); frames do not show it
    digest: str = field(init=False)

    def __post_init__(self):
        _check_frames(self.frames)
        checks.require_positive(pixel_size=self.pixel_size, frame_rate=self.frame_rate)
        _check_source(self.source_pixel, self.frames.shape[1:])
        checks.require_point(wind=self.wind)
        object.__setattr__(self, "digest", _validate_and_digest(self.frames, self._metadata()))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        pixel_size: float | int | None = None,
        frame_rate: float | int | None = None,
        source_pixel: Any = None,
        wind: Any = (0.0, 0.0),
        dataset: str | None = None,
    ) -> "PlumeRecording":
        """Open a `.npy`, `.h5`, `.hdf5` or `.zarr` file. HDF5 and Zarr files may contain the numbers as attributes
        of the same names; `dataset` names the array if a file has several."""
        path = Path(path)
        if path.suffix.lower() not in OPENERS:
            raise ValidationError("path", str(path), f"a file that ends in {', '.join(OPENERS)}")
        if not path.exists():
            raise ValidationError("path", str(path), "a file that exists")
        frames, file_attributes = OPENERS[path.suffix.lower()](path, dataset)
        given = {"pixel_size": pixel_size, "frame_rate": frame_rate, "source_pixel": source_pixel}
        values: dict[str, Any] = {
            name: file_attributes.get(name) if value is None else value for name, value in given.items()
        }
        for name, value in values.items():
            if value is None:
                raise ValidationError(name, None, f"a value: {path.name} does not contain it")
        numbers = _number(values, "pixel_size"), _number(values, "frame_rate"), _pair(values["source_pixel"])
        return cls(frames, *numbers, wind)

    def field(
        self,
        *,
        dt: float = 0.04,
        end: str = "wrap",
        shuffle: bool = True,
        flow: Wind | None = None,
    ) -> Movie:
        """The plume of this recording; integers are scaled by the maximum of their type.

        `flow` is the wind, by default the recording's.

        Pixel (row, column) is the point (column · pixel_size, row · pixel_size)."""
        kind = self.frames.dtype
        scale = 1.0 / np.iinfo(kind).max if kind.kind in "iu" else 1.0
        frames = jnp.asarray(self.frames)
        return Movie(
            self.source_point,
            frames,
            self.source_pixel,
            self.pixel_size,
            self.frame_rate,
            scale,
            Constant(self.wind) if flow is None else flow,
            dt,
            end,
            shuffle,
        )

    @property
    def source_point(self) -> tuple[float, float]:
        row, column = self.source_pixel
        return column * self.pixel_size, row * self.pixel_size

    def _metadata(self) -> tuple[Any, ...]:
        numbers = self.pixel_size, self.frame_rate, tuple(self.source_pixel), tuple(self.wind)
        return *numbers, self.frames.shape, self.frames.dtype.str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlumeRecording) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PlumeRecording({'×'.join(map(str, self.frames.shape))}, {self.frame_rate:g} Hz, {self.digest[:8]})"


def synthetic_recording(num_frames: int = 60, height: int = 48, width: int = 72, seed: int = 0) -> PlumeRecording:
    """A meandering plume at 10 frames per second, one length unit per pixel, in bytes."""
    source = (4.0, height / 2)
    plume = Meander(source, speed=16.0, sigma=1.5, gust=4.0, time_constant=1.5, dt=0.1, history=64)
    x, y = jnp.meshgrid(jnp.arange(width, dtype=float), jnp.arange(height, dtype=float))

    def record_frame(state: Any, key: Any) -> tuple[Any, Any]:
        picture = plume.concentration(state, jnp.stack([x, y], axis=-1))
        return plume.advance(key, state), jnp.round(255 * picture).astype(jnp.uint8)

    start_key, film_key = random.split(random.key(seed))
    _, frames = jax.lax.scan(record_frame, plume.init(start_key), random.split(film_key, num_frames))
    numbers: Any = {"pixel_size": 1.0, "frame_rate": 10.0, "source_pixel": (source[1], source[0]), "wind": (16.0, 0.0)}
    return PlumeRecording(np.asarray(frames), **numbers)


def _check_frames(frames: Any) -> None:
    if not isinstance(frames, np.ndarray) or frames.ndim != 3:
        raise ValidationError("frames", np.shape(frames), "an array with the axes (time, y, x)")
    if frames.dtype.kind not in "iuf":
        raise ValidationError("frames", frames.dtype, "an array of real numbers")
    if frames.shape[0] < 1 or min(frames.shape[1:]) < 2:
        raise ValidationError("frames", frames.shape, "at least one frame of at least 2×2 pixels")


def _number(values: dict[str, Any], name: str) -> float:
    if np.shape(values[name]) != () or isinstance(values[name], str):
        raise ValidationError(name, values[name], "a number")
    return float(values[name])


def _pair(source_pixel: Any) -> tuple[float, float]:
    if np.shape(source_pixel) != (2,):
        raise ValidationError("source_pixel", source_pixel, "(row, column)")
    row, column = source_pixel
    return float(row), float(column)


def _check_source(source_pixel: Any, shape: Any) -> None:
    for value, size in zip(_pair(source_pixel), shape, strict=True):
        if not 0 <= value <= size - 1:
            raise ValidationError("source_pixel", source_pixel, f"(row, column) inside frames of {shape} pixels")


def _validate_and_digest(frames: NDArray[Any], metadata: tuple[Any, ...]) -> str:
    """Read all frames in chunks: a recording need not fit into memory."""
    digest = hashlib.blake2b(repr(metadata).encode(), digest_size=16)
    for first in range(0, len(frames), CHUNK):
        chunk = np.ascontiguousarray(frames[first : first + CHUNK])
        if not np.all(np.isfinite(chunk)):
            raise ValidationError("frames", f"not finite near frame {first}", "finite concentrations")
        if chunk.dtype.kind != "u" and np.any(chunk < 0):
            raise ValidationError("frames", f"negative near frame {first}", "concentrations of 0 or more")
        digest.update(chunk.data)
    return digest.hexdigest()


def _open_numpy(path: Path, dataset: str | None) -> tuple[Any, dict[str, Any]]:
    if dataset is not None:
        raise ValidationError("dataset", dataset, "None: a .npy file contains one array")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False), {}
    except (ValueError, EOFError) as error:
        raise ValidationError("path", str(path), f"a NumPy file; it cannot be read: {error}") from error


def _open_hdf5(path: Path, dataset: str | None) -> tuple[Any, dict[str, Any]]:
    h5py = _import("h5py")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValidationError("path", str(path), f"an HDF5 file; it cannot be read: {error}") from error
    with file:
        arrays: dict[str, Any] = {}
        file.visititems(lambda name, item: arrays.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        array = _choose(arrays, dataset)
        return array[()], {**_numbers(file.attrs), **_numbers(array.attrs)}


def _open_zarr(path: Path, dataset: str | None) -> tuple[Any, dict[str, Any]]:
    zarr = _import("zarr")
    try:
        store = zarr.open(str(path), mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise ValidationError("path", str(path), f"a Zarr store; it cannot be read: {error}") from error
    if isinstance(store, zarr.Array):
        return np.asarray(store[...]), _numbers(store.attrs)
    array = _choose(dict(store.arrays()), dataset)
    return np.asarray(array[...]), {**_numbers(store.attrs), **_numbers(array.attrs)}


OPENERS = {".npy": _open_numpy, ".h5": _open_hdf5, ".hdf5": _open_hdf5, ".zarr": _open_zarr}


def _choose(arrays: dict[str, Any], dataset: str | None) -> Any:
    """The array of that name, or the only one with three axes."""
    if dataset is not None and dataset not in arrays:
        raise ValidationError("dataset", dataset, f"the name of an array in the file: {sorted(arrays)}")
    candidates = [name for name, array in arrays.items() if len(array.shape) == 3]
    if dataset is None and len(candidates) != 1:
        raise ValidationError("dataset", None, f"the name of one of the arrays (time, y, x): {sorted(candidates)}")
    return arrays[dataset or candidates[0]]


def _numbers(attributes: Any) -> dict[str, Any]:
    return {name: attributes[name] for name in METADATA if name in attributes}


def _import(package: str) -> Any:
    require_extra("movie", "this file", package)
    return importlib.import_module(package)
