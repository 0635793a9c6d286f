"""Films on disk: arrays in NumPy, HDF5, MATLAB (v7.3) and Zarr files, of which only the requested frames are read."""

import importlib
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tropism.errors import ValidationError, require_extra

AXES = "tyx"  # of frames in memory; the default order in a file
MATLAB_AXES = "yxt"  # the default order as MATLAB displays it; the file has the reverse


class OpenFile(NamedTuple):
    arrays: dict[str, Any]  # by name; a Zarr array without a group has the name ""
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class StoredFrames:
    """Frames (time, y, x) of an HDF5 file or a Zarr store. An index, a slice, reads these frames."""

    path: Path
    name: str  # of the array in the file
    order: tuple[int, ...]  # the axes of the file that are time, y and x
    chosen: range  # frames of the file
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice) -> NDArray[Any]:
        chosen = self.chosen[index]
        key = [slice(None)] * 3
        key[self.order[0]] = slice(chosen.start, chosen.stop, chosen.step)
        with FORMATS[self.path.suffix.lower()](self.path) as file:
            return np.asarray(file.arrays[self.name][tuple(key)]).transpose(self.order)


def open_frames(
    path: Path, dataset: str | None, axes: str | None, frames: Any, others: tuple[str, ...] = ()
) -> tuple[Any, dict[str, Any]]:
    """The frames of a file, not yet read, and the attributes of the file and the array.

    Without `dataset` the frames are the only array with three axes, apart from `others`.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValidationError("path", str(path), f"a file that ends in {', '.join(SUFFIXES)}")
    if not path.exists():
        raise ValidationError("path", str(path), "a file that exists")
    order = _order(axes, suffix)
    if suffix == ".npy":
        array = _open_numpy(path, dataset)
        return (array.transpose(order)[_slice(frames)] if array.ndim == 3 else array), {}
    with FORMATS[suffix](path) as file:
        name = _choose({key: each for key, each in file.arrays.items() if key not in others}, dataset)
        array = file.arrays[name]
        attributes = {**file.attributes, **array.attrs}
        if len(array.shape) != 3:
            raise ValidationError(
                "dataset", dataset, f"an array with the axes (time, y, x) in any order, not {array.shape}"
            )
        num_frames, *picture = (array.shape[axis] for axis in order)
        chosen = range(num_frames)[_slice(frames)]
        shape = (len(chosen), *picture)
        return StoredFrames(path, name, order, chosen, shape, np.dtype(array.dtype)), attributes


def _order(axes: str | None, suffix: str) -> tuple[int, ...]:
    """The position of time, y and x in the file."""
    named = (MATLAB_AXES if suffix == ".mat" else AXES) if axes is None else axes
    if sorted(named) != sorted(AXES):
        raise ValidationError("axes", axes, 'the letters t, y and x in the order of the array, such as "tyx"')
    stored = named[::-1] if suffix == ".mat" else named  # MATLAB stores the last axis first
    return tuple(stored.index(axis) for axis in AXES)


def _slice(frames: Any) -> slice:
    """A slice, or its numbers (start, stop) or (start, stop, step)."""
    chosen = slice(*frames) if isinstance(frames, tuple | list) and len(frames) in (2, 3) else frames
    chosen = slice(None) if chosen is None else chosen
    if not isinstance(chosen, slice) or (chosen.step is not None and chosen.step < 1):
        raise ValidationError("frames", frames, "slice(start, stop, step) or (start, stop, step), with a step above 0")
    return chosen


def frame_step(frames: Any) -> int:
    """The distance between two frames that are read."""
    return _slice(frames).step or 1


def _choose(arrays: dict[str, Any], dataset: str | None) -> str:
    """The name of the array: `dataset`, or that of the only array with three axes."""
    if dataset is not None and dataset not in arrays:
        raise ValidationError("dataset", dataset, f"the name of an array in the file: {sorted(arrays)}")
    candidates = [name for name, array in arrays.items() if len(array.shape) == 3]
    if dataset is None and len(candidates) != 1:
        raise ValidationError("dataset", None, f"the name of one of the arrays with three axes: {sorted(candidates)}")
    return candidates[0] if dataset is None else dataset


def _open_numpy(path: Path, dataset: str | None) -> NDArray[Any]:
    if dataset is not None:
        raise ValidationError("dataset", dataset, "None: a .npy file contains one array")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValidationError("path", str(path), f"a NumPy file; it cannot be read: {error}") from error


@contextmanager
def _open_hdf5(path: Path) -> Generator[OpenFile]:
    h5py = _import("h5py")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        kind = "a MATLAB file saved with -v7.3" if path.suffix.lower() == ".mat" else "an HDF5 file"
        raise ValidationError("path", str(path), f"{kind}; it cannot be read: {error}") from error
    with file:
        arrays: dict[str, Any] = {}
        file.visititems(lambda name, item: arrays.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        yield OpenFile(arrays, dict(file.attrs))


@contextmanager
def _open_zarr(path: Path) -> Generator[OpenFile]:
    zarr = _import("zarr")
    try:
        store = zarr.open(str(path), mode="r")
    except (FileNotFoundError, ValueError) as error:
        raise ValidationError("path", str(path), f"a Zarr store; it cannot be read: {error}") from error
    arrays = {"": store} if isinstance(store, zarr.Array) else dict(store.arrays())
    yield OpenFile(arrays, dict(store.attrs))


def _import(package: str) -> Any:
    require_extra("movie", "this file", package)
    return importlib.import_module(package)


FORMATS: dict[str, Callable[[Path], AbstractContextManager[OpenFile]]] = {
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
    ".mat": _open_hdf5,
    ".zarr": _open_zarr,
}
SUFFIXES = (".npy", *FORMATS)
