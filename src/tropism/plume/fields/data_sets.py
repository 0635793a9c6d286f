"""Public recordings of plumes by name: where they are published, and the metadata that their files lack."""

import hashlib
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from tropism.errors import ValidationError
from tropism.plume.fields.recording import PlumeRecording


class DataSet(NamedTuple):
    """A published recording. What is not published with it is None and an argument of `load_data_set`."""

    title: str
    doi: str  # of the data
    paper: str  # DOI
    licence: str
    file: str
    checksum: str | None  # "algorithm:hexadecimal digits"
    unit: str  # of length
    dataset: str | None = None  # the array in the file
    axes: str | None = None  # as in `PlumeRecording.load`
    pixel_size: float | None = None
    frame_rate: float | None = None  # frames/s
    source_pixel: tuple[float, float] | None = None  # (row, column)
    wind: tuple[float, float] = (0.0, 0.0)  # units/s
    clip: bool = False


DATA_SETS = {
    "crimaldi-plif": DataSet(
        "Acetone vapour near the bed of a wind tunnel at 10 cm/s, by planar laser-induced fluorescence",
        doi="10.5061/dryad.g27mq71",
        paper="10.1007/s00348-018-2591-3",
        licence="CC0-1.0",
        file="10302017_10cms_bounded_2.h5",
        checksum="md5:cf3cadd8a9b53c2a3f6d3aca37f71a62",
        unit="mm",
        dataset="dataset2",
        axes="txy",
        pixel_size=0.74,
        frame_rate=15.0,
        source_pixel=(108.0, 1.0),
        wind=(100.0, 0.0),
        clip=True,
    ),
    "rigolli-dns": DataSet(
        "Odour 50 cm above the ground, from a direct numerical simulation of a turbulent channel flow",
        doi="10.5281/zenodo.15469831",
        paper="10.7554/eLife.76989",
        licence="CC-BY-4.0",
        file="nose_data.mat",
        checksum=None,
        unit="m",
        dataset="nose",
    ),
    "emonet-smoke": DataSet(
        "Smoke in a wind tunnel in which flies walk",
        doi="10.5061/dryad.4j0zpc87z",
        paper="10.7554/eLife.57524",
        licence="CC0-1.0",
        file="2018_09_12_NA_3_3ds_5do_IS_1-frames.mat",
        checksum=None,
        unit="mm",
        dataset="frames",
        pixel_size=300.0 / 2048,
        frame_rate=90.0,
        clip=True,
    ),
}


def load_data_set(name: str, path: str | Path, *, verify: bool = True, **changes: Any) -> PlumeRecording:
    """Open a file of a public data set, which you have downloaded; `changes` are arguments of `PlumeRecording.load`.

    The file is compared with its checksum. If none is known, a warning contains the file's.
    """
    if name not in DATA_SETS:
        raise ValidationError("name", name, f"one of {', '.join(DATA_SETS)}")
    known, path = DATA_SETS[name], Path(path)
    if not path.exists():
        raise ValidationError("path", str(path), f"a file that exists; download {known.file} from doi:{known.doi}")
    if verify:
        _verify(name, known, path)
    numbers = {key: getattr(known, key) for key in ("pixel_size", "frame_rate", "source_pixel")}
    missing = [key for key, value in numbers.items() if value is None and changes.get(key) is None]
    if missing:
        raise ValidationError(missing[0], None, f"a value: {known.file} and its publication do not contain it")
    about: dict[str, Any] = {
        "dataset": known.dataset,
        "axes": known.axes,
        "wind": known.wind,
        "clip": known.clip,
        **numbers,
    }
    return PlumeRecording.load(path, **about | changes)


def _verify(name: str, known: DataSet, path: Path) -> None:
    algorithm, _, expected = (known.checksum or "sha256:").partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if not expected:
        warnings.warn(f"the checksum of {name} is not known; {path.name} has {algorithm}:{found}", stacklevel=3)
    elif found != expected:
        message = f"a file with {known.checksum}, or verify=False"
        raise ValidationError("path", f"{path.name} with {algorithm}:{found}", message)
