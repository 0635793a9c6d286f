"""Recorded plumes: frames (time, y, x) with their metadata, from a file or an array, and a small synthetic one."""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.errors import ValidationError
from tropism.plume import checks
from tropism.plume.fields.field import simulate
from tropism.plume.fields.files import SUFFIXES, StoredFrames, frame_step, open_frames
from tropism.plume.fields.meander import Meander
from tropism.plume.fields.movie import Movie
from tropism.plume.wind import Constant, Wind

CHUNK = 64  # frames read at once

Frames = Any  # NDArray[Any] or StoredFrames, with the axes (time, y, x)


@dataclass(frozen=True, eq=False)
class PlumeRecording:
    """Frames and their metadata; compared and hashed by content, so an environment can hold it.

    The frames of a file stay on disk until `field` puts them on the device.
    """

    frames: Frames
    pixel_size: float | int  # length units
    frame_rate: float | int  # frames/s
    source_pixel: tuple[float | int, float | int]  # (row, column); may be outside the frames
    wind: tuple[float | int, float | int] = (0.0, 0.0)  # length units/s, (x, y), if there is no velocity film
    velocity: tuple[Frames, Frames] | None = None  # length units/s: films of the wind's x and y, as large as `frames`
    clip: bool = False  # negative values, as in background-subtracted data, are 0
    normalise: float | int | str | None = None  # the pixel value of concentration 1; "max": the largest one
    digest: str = field(init=False)
    peak: float = field(init=False)  # the largest pixel value

    def __post_init__(self):
        _check_frames(self.frames)
        checks.require_positive(pixel_size=self.pixel_size, frame_rate=self.frame_rate)
        checks.require_finite(source_pixel=np.asarray(_pair(self.source_pixel)))
        checks.require_point(wind=self.wind)
        if self.normalise not in (None, "max"):
            checks.require_positive(normalise=self.normalise)
        for film in self.velocity or ():
            if film.shape != self.frames.shape:
                raise ValidationError("velocity", film.shape, f"two arrays of the frames' shape, {self.frames.shape}")
        _check_memory(self.frames, *(self.velocity or ()))
        digest = hashlib.blake2b(repr(self._metadata()).encode(), digest_size=16)
        object.__setattr__(self, "peak", _read_through("frames", self.frames, digest, self.clip))
        for film in self.velocity or ():
            _read_through("velocity", film, digest, negative=True)
        if self.normalise == "max" and self.peak <= 0:
            raise ValidationError("normalise", "max", "a number: no pixel is above 0")
        object.__setattr__(self, "digest", digest.hexdigest())

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        pixel_size: float | int | None = None,
        frame_rate: float | int | None = None,
        source_pixel: Any = None,
        wind: Any = (0.0, 0.0),
        velocity: tuple[str, str] | None = None,
        dataset: str | None = None,
        axes: str | None = None,
        frames: Any = None,
        clip: bool = False,
        normalise: float | int | str | None = None,
    ) -> "PlumeRecording":
        """Open a `.npy`, `.h5`, `.hdf5`, `.mat` (v7.3) or `.zarr` file. HDF5 and Zarr files may contain the numbers as
        attributes of the same names; `dataset` names the array if a file has several.

        `axes` is the order of the array's axes, "tyx" by default; for a `.mat` file the order in MATLAB, "yxt" by
        default. `frames`, a slice or (start, stop, step), selects frames; others are not read. `velocity` are two
        arrays of the same file by name, or two files."""
        path = Path(path)
        others = tuple(name for name in velocity or () if not _is_file(name))
        film, attributes = open_frames(path, dataset, axes, frames, others)
        given = {"pixel_size": pixel_size, "frame_rate": frame_rate, "source_pixel": source_pixel}
        values: dict[str, Any] = {
            name: attributes.get(name) if value is None else value for name, value in given.items()
        }
        for name, value in values.items():
            if value is None:
                raise ValidationError(name, None, f"a value: {path.name} does not contain it")
        rate = _number(values, "frame_rate") / frame_step(frames)
        numbers = _number(values, "pixel_size"), rate, _pair(values["source_pixel"])
        winds = velocity and tuple(
            open_frames(Path(name), None, axes, frames)[0]
            if _is_file(name)
            else open_frames(path, name, axes, frames)[0]
            for name in velocity
        )
        return cls(film, *numbers, tuple(wind), winds, clip, normalise)  # pyright: ignore[reportArgumentType]

    def field(
        self,
        *,
        dt: float = 0.04,
        end: str = "wrap",
        shuffle: bool = True,
        flow: Wind | None = None,
    ) -> Movie:
        """The plume of this recording; integers are scaled by the maximum of their type, unless `normalise` is given.

        `flow` is the wind, by default the recording's.

        Pixel (row, column) is the point (column · pixel_size, row · pixel_size)."""
        velocity = self.velocity if self.velocity is not None and flow is None else (None, None)
        u, v = (None if film is None else _to_device(film) for film in velocity)
        return Movie(
            self.source_point,
            _to_device(self.frames),
            self.source_pixel,
            self.pixel_size,
            self.frame_rate,
            self._scale(),
            Constant(self.wind) if flow is None else flow,
            dt,
            u,
            v,
            end,
            shuffle,
            self.clip,
        )

    def _scale(self) -> float:
        if self.normalise is not None:
            return 1.0 / float(self.peak if self.normalise == "max" else self.normalise)
        kind = self.frames.dtype
        return 1.0 / np.iinfo(kind).max if kind.kind in "iu" else 1.0

    @property
    def source_point(self) -> tuple[float, float]:
        row, column = self.source_pixel
        return column * self.pixel_size, row * self.pixel_size

    def _metadata(self) -> tuple[Any, ...]:
        numbers = [float(each) for each in (self.pixel_size, self.frame_rate, *self.source_pixel, *self.wind)]
        return *numbers, self.clip, self.normalise, self.frames.shape, self.frames.dtype.str

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

    def read(state: Any) -> Any:
        return jnp.round(255 * plume.concentration(state, jnp.stack([x, y], axis=-1))).astype(jnp.uint8)

    frames = simulate(plume, random.split(random.key(seed)), num_frames, read)
    numbers: Any = {"pixel_size": 1.0, "frame_rate": 10.0, "source_pixel": (source[1], source[0]), "wind": (16.0, 0.0)}
    return PlumeRecording(np.asarray(frames), **numbers)


def _check_frames(frames: Any) -> None:
    if not isinstance(frames, np.ndarray | StoredFrames) or len(frames.shape) != 3:
        raise ValidationError("frames", np.shape(frames), "an array with the axes (time, y, x)")
    if frames.dtype.kind not in "iuf":
        raise ValidationError("frames", frames.dtype, "an array of real numbers")
    if frames.shape[0] < 1 or min(frames.shape[1:]) < 2:
        raise ValidationError("frames", frames.shape, "at least one frame of at least 2×2 pixels")


def _check_memory(*films: Frames) -> None:
    size = sum(float(np.prod(film.shape, dtype=float)) * film.dtype.itemsize for film in films)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > memory:
        expected = f"less than the memory of {memory / 1e9:.3g} GB: select some, as in frames=slice(0, 1000, 2)"
        raise ValidationError("frames", f"{len(films[0])} frames of {size / 1e9:.3g} GB in all", expected)


def _is_file(name: Any) -> bool:
    return Path(name).suffix.lower() in SUFFIXES


def _number(values: dict[str, Any], name: str) -> float:
    if np.shape(values[name]) != () or isinstance(values[name], str):
        raise ValidationError(name, values[name], "a number")
    return float(values[name])


def _pair(source_pixel: Any) -> tuple[float, float]:
    if np.shape(source_pixel) != (2,):
        raise ValidationError("source_pixel", source_pixel, "(row, column)")
    row, column = source_pixel
    return float(row), float(column)


def _read_through(name: str, film: Frames, digest: Any, negative: bool) -> float:
    """Validate all frames and add them to the digest, a range at a time; the largest value."""
    peak = -np.inf
    for first in range(0, len(film), CHUNK):
        chunk = np.ascontiguousarray(film[first : first + CHUNK])
        if not np.all(np.isfinite(chunk)):
            raise ValidationError(name, f"not finite near frame {first}", "finite numbers")
        if not negative and chunk.dtype.kind != "u" and np.any(chunk < 0):
            expected = "concentrations of 0 or more; clip=True replaces negative ones by 0"
            raise ValidationError(name, f"negative near frame {first}", expected)
        digest.update(chunk.data)
        peak = max(peak, float(chunk.max()))
    return peak


def _to_device(film: Frames) -> Any:
    """The film in the precision in which it is played, read from a file a range at a time."""
    if isinstance(film, np.ndarray) and film.dtype.isnative:
        return jnp.asarray(film)
    frames = np.empty(film.shape, jax.dtypes.canonicalize_dtype(film.dtype.newbyteorder("=")))
    for first in range(0, len(film), CHUNK):
        frames[first : first + CHUNK] = film[first : first + CHUNK]
    return jnp.asarray(frames)
