"""Files of recorded plumes: axis order, MATLAB, background, velocity films, large files, public data sets."""

import hashlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tropism import make
from tropism.errors import ValidationError
from tropism.plume import DATA_SETS, PlumeRecording, load_data_set
from tropism.plume.fields.files import StoredFrames
from tropism.plume.fields.movie import MovieState
from tropism.plume.wind import Constant

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

RNG = np.random.default_rng(0)
FRAMES = RNG.uniform(0, 1, (200, 5, 7)).astype(np.float32)
ABOUT: dict[str, Any] = {"pixel_size": 0.5, "frame_rate": 10.0, "source_pixel": (2, 1)}
EXPECTED = PlumeRecording(FRAMES, **ABOUT)


def at_step(steps: int) -> MovieState:
    return MovieState(jnp.asarray(0.0), jnp.asarray(steps, jnp.int32), ())


def write(path: Path, **arrays: np.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


@pytest.mark.parametrize("axes", ["tyx", "txy", "ytx", "yxt", "xty", "xyt"])
def test_a_file_may_have_its_axes_in_any_order(axes: str, tmp_path: Path) -> None:
    array = np.transpose(FRAMES, ["tyx".index(axis) for axis in axes])
    np.save(tmp_path / "plume.npy", array)
    stored = zarr.create_array(str(tmp_path / "plume.zarr"), data=np.ascontiguousarray(array))
    assert stored.shape == array.shape
    for path in (tmp_path / "plume.npy", tmp_path / "plume.zarr", write(tmp_path / "plume.h5", frames=array)):
        recording = PlumeRecording.load(path, axes=axes, **ABOUT)
        assert recording == EXPECTED
        np.testing.assert_array_equal(np.asarray(recording.field().frames), FRAMES)


@pytest.mark.parametrize("axes", ["", "tyz", "ttyx", "tyxc"])
def test_unknown_axes_are_rejected(axes: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="axes"):
        PlumeRecording.load(write(tmp_path / "plume.h5", frames=FRAMES), axes=axes, **ABOUT)


def test_the_axes_of_a_matlab_file_are_those_that_matlab_shows(tmp_path: Path) -> None:
    """MATLAB 7.3 writes HDF5 behind a header of 512 bytes, and an array of size (y, x, t) as (t, x, y)."""
    path = tmp_path / "plume.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["frames"] = np.transpose(FRAMES, (0, 2, 1))
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    assert PlumeRecording.load(path, **ABOUT) == EXPECTED
    assert PlumeRecording.load(path, axes="yxt", **ABOUT) == EXPECTED
    assert PlumeRecording.load(path, axes="xyt", **ABOUT).frames.shape == (200, 7, 5)


def test_an_older_matlab_file_names_the_version_to_save(tmp_path: Path) -> None:
    (tmp_path / "plume.mat").write_bytes(b"MATLAB 5.0 MAT-file".ljust(200))
    with pytest.raises(ValidationError, match=r"-v7\.3"):
        PlumeRecording.load(tmp_path / "plume.mat", **ABOUT)


def test_background_subtracted_data_are_clipped_before_interpolation() -> None:
    frames = np.array([[[-1.0, 1.0], [3.0, 1.0]]], np.float32)
    with pytest.raises(ValidationError, match="clip=True"):
        PlumeRecording(frames, 1.0, 1.0, (0, 0))
    movie = PlumeRecording(frames, 1.0, 1.0, (0, 0), clip=True).field(shuffle=False)
    points = jnp.array([[0.0, 0.0], [0.5, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(movie.concentration(at_step(0), points), [0.0, 0.5, 1.25], rtol=1e-6)


@pytest.mark.parametrize(("normalise", "scale"), [("max", 1 / 50), (25.0, 1 / 25), (None, 1 / 255)])
def test_normalise_is_the_pixel_value_of_concentration_one(normalise: Any, scale: float) -> None:
    frames = np.array([[[10, 20], [30, 50]]], np.uint8)
    movie = PlumeRecording(frames, 1.0, 1.0, (0, 0), normalise=normalise).field(shuffle=False)
    np.testing.assert_allclose(movie.concentration(at_step(0), jnp.array([1.0, 1.0])), 50 * scale, rtol=1e-6)
    assert PlumeRecording(frames, 1.0, 1.0, (0, 0), normalise=10) != PlumeRecording(frames, 1.0, 1.0, (0, 0))


@pytest.mark.parametrize("normalise", [0.0, -1, "mean", float("nan")])
def test_an_impossible_scale_is_rejected(normalise: Any) -> None:
    with pytest.raises(ValidationError, match="normalise"):
        PlumeRecording(FRAMES, **ABOUT, normalise=normalise)


def test_the_wind_is_that_of_the_velocity_films_at_the_agent(tmp_path: Path) -> None:
    u, v = RNG.normal(1, 1, (2, *FRAMES.shape)).astype(np.float32)
    recording = PlumeRecording.load(write(tmp_path / "plume.h5", c=FRAMES, u=u, v=v), velocity=("u", "v"), **ABOUT)
    movie = recording.field(dt=0.1, shuffle=False)
    # Point (1.25, 0.75) is halfway between pixels in both directions.
    expected = [film[3, 1:3, 2:4].mean() for film in (u, v)]
    np.testing.assert_allclose(movie.wind(at_step(3), jnp.array([[1.25, 0.75]])), [expected], rtol=1e-5)
    beyond = movie.wind(at_step(3), jnp.array([-10.0, 100.0]))
    np.testing.assert_allclose(beyond, [u[3, 4, 0], v[3, 4, 0]], rtol=1e-6)
    calm = movie.with_wind(Constant((0.2, 0.1)))
    np.testing.assert_allclose(calm.wind(at_step(3), jnp.array([1.0, 1.0])), [0.2, 0.1], rtol=1e-6)
    for name, film in (("u", u), ("v", v)):
        np.save(tmp_path / f"{name}.npy", film)
    np.save(tmp_path / "c.npy", FRAMES)
    films = (str(tmp_path / "u.npy"), str(tmp_path / "v.npy"))
    assert PlumeRecording.load(tmp_path / "c.npy", velocity=films, **ABOUT) == recording


def test_velocity_films_have_the_shape_of_the_frames() -> None:
    with pytest.raises(ValidationError, match="velocity"):
        PlumeRecording(FRAMES, **ABOUT, velocity=(FRAMES, FRAMES[:10]))


@pytest.mark.parametrize("source", [(2, -3.5), (-4, 3), (9, 20)])
def test_a_source_may_be_outside_the_picture(source: Any) -> None:
    recording = PlumeRecording(FRAMES, 0.5, 10.0, source)
    env, params = make("PlumeNavMovie-v0", recording=recording)
    assert params.field.source == (source[1] * 0.5, source[0] * 0.5)
    np.testing.assert_allclose(
        params.field.concentration(at_step(0), jnp.array([1.5, 1.0])), FRAMES[0, 2, 3], rtol=1e-5
    )
    outside = params.field.concentration(at_step(0), jnp.asarray(params.field.source, float))
    assert float(outside) == 0
    assert env.grid_size[0] * env.grid_size[1] > 5 * 7


def test_only_the_selected_frames_of_a_huge_file_are_read(tmp_path: Path) -> None:
    """A sparse file of two terabytes, of which 20 frames exist."""
    path = tmp_path / "plume.h5"
    with h5py.File(path, "w") as file:
        film = file.create_dataset("frames", (1_000_000, 1000, 2000), np.uint8, chunks=(1, 1000, 2000))
        film[100:140:2, :3, :4] = np.arange(20, dtype=np.uint8)[:, None, None]
    with pytest.raises(ValidationError, match=r"2e\+03 GB.*frames=slice"):
        PlumeRecording.load(path, **ABOUT)
    recording = PlumeRecording.load(path, frames=slice(100, 140, 2), **ABOUT)
    assert isinstance(recording.frames, StoredFrames)
    assert recording.frames.shape == (20, 1000, 2000)
    assert recording.frame_rate == 5.0
    assert recording == PlumeRecording.load(path, frames=(100, 140, 2), **ABOUT)
    np.testing.assert_array_equal(recording.frames[5:8][:, 0, 0], [5, 6, 7])
    np.testing.assert_array_equal(np.asarray(recording.field().frames)[:, 2, 3], np.arange(20))


@pytest.mark.parametrize("frames", [slice(10, 0, -1), 5, (1,), "all"])
def test_impossible_selections_are_rejected(frames: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "plume.npy", FRAMES)
    with pytest.raises(ValidationError, match="frames"):
        PlumeRecording.load(tmp_path / "plume.npy", frames=frames, **ABOUT)


def test_selected_frames_of_a_numpy_file_stay_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "plume.npy", FRAMES)
    recording = PlumeRecording.load(tmp_path / "plume.npy", frames=slice(50, 150), **ABOUT)
    assert isinstance(recording.frames, np.memmap)
    assert recording == PlumeRecording(FRAMES[50:150], **ABOUT)


def test_big_endian_doubles_are_played_in_single_precision(tmp_path: Path) -> None:
    recording = PlumeRecording.load(write(tmp_path / "plume.h5", frames=FRAMES.astype(">f8")), **ABOUT)
    np.testing.assert_array_equal(np.asarray(recording.field().frames), FRAMES)


def test_every_public_data_set_names_its_origin() -> None:
    for known in DATA_SETS.values():
        assert known.doi.startswith("10.")
        assert known.licence.startswith("CC")
        assert known.unit in ("m", "mm")
    assert DATA_SETS["crimaldi-plif"].source_pixel == (108.0, 1.0)


def test_a_public_data_set_is_verified_and_has_its_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "plif.h5", dataset2=np.transpose(FRAMES - 0.01, (0, 2, 1)))
    with pytest.raises(ValidationError, match="md5:cf3c"):
        load_data_set("crimaldi-plif", path)
    recording = load_data_set("crimaldi-plif", path, verify=False)
    assert recording.frames.shape == (200, 5, 7)
    assert (recording.pixel_size, recording.frame_rate, recording.wind) == (0.74, 15.0, (100.0, 0.0))
    checksum = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(DATA_SETS, "own", DATA_SETS["crimaldi-plif"]._replace(checksum=checksum))
    assert load_data_set("own", path) == recording
    env, _ = make("PlumeNavMovie-v0", recording=str(path), data_set="own")
    assert env.field == recording


def test_an_unknown_checksum_and_missing_metadata_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "nose_data.mat", nose=FRAMES)
    with pytest.warns(UserWarning, match="not known.*sha256:"), pytest.raises(ValidationError, match="pixel_size"):
        load_data_set("rigolli-dns", path)
    with pytest.warns(UserWarning, match="sha256"):
        assert load_data_set("rigolli-dns", path, axes="xyt", **ABOUT) == EXPECTED
    with pytest.raises(ValidationError, match="crimaldi-plif"):
        load_data_set("plif", path)
    with pytest.raises(ValidationError, match=r"download nose_data\.mat from doi:10\.5281"):
        load_data_set("rigolli-dns", tmp_path / "none.mat")


def test_arguments_for_files_are_rejected_without_a_file() -> None:
    with pytest.raises(ValidationError, match="axes"):
        make("PlumeNavMovie-v0", axes="tyx")
