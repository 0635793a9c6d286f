"""Recordings: loading, validation and playback."""

import math
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tropism.errors import MissingExtraError, ValidationError
from tropism.plume.fields import Movie, PlumeRecording, synthetic_recording
from tropism.plume.fields.movie import MovieState
from tropism.plume.wind import Constant

FRAMES = np.random.default_rng(0).uniform(0, 1, (12, 5, 7)).astype(np.float32)
ABOUT: dict[str, Any] = {"pixel_size": 0.5, "frame_rate": 10.0, "source_pixel": (2, 1)}


def film(**changes: Any) -> Movie:
    options: dict[str, Any] = {"dt": 0.04, "shuffle": False, **changes}
    return PlumeRecording(FRAMES, **ABOUT).field(**options)


def at_step(steps: int, start: float = 0.0) -> MovieState:
    return MovieState(jnp.asarray(start), jnp.asarray(steps, jnp.int32), ())


def bilinear(frame: np.ndarray, row: float, column: float) -> float:
    if not (0 <= row <= frame.shape[0] - 1 and 0 <= column <= frame.shape[1] - 1):
        return 0.0
    below, left = min(int(row), frame.shape[0] - 2), min(int(column), frame.shape[1] - 2)
    up, right = row - below, column - left
    corners = frame[below : below + 2, left : left + 2]
    return float(np.array([1 - up, up]) @ corners @ np.array([1 - right, right]))


def test_time_is_mapped_by_seconds() -> None:
    """10 frames per second at 25 steps per second: each frame lasts two or three steps."""
    movie = film()
    shown = [int(movie.frame_index(at_step(step))) for step in range(26)]
    assert shown == [math.floor(step * 0.4 + 1e-9) for step in range(26)]


def test_steps_as_long_as_a_frame_show_every_frame_once() -> None:
    movie = film(dt=0.1)
    assert [int(movie.frame_index(at_step(step))) for step in range(12)] == list(range(12))


def test_the_recording_wraps_or_clamps_at_its_end() -> None:
    assert [int(film(dt=0.1).frame_index(at_step(step))) for step in (11, 12, 13, 30)] == [11, 0, 1, 6]
    assert [int(film(dt=0.1, end="clamp").frame_index(at_step(step))) for step in (11, 12, 13, 30)] == [11] * 4


def test_bilinear_between_pixels_and_zero_outside() -> None:
    points = np.random.default_rng(1).uniform([-0.5, -0.5], [3.5, 2.5], (100, 2))
    expected = [bilinear(FRAMES[4], y / 0.5, x / 0.5) for x, y in points]
    np.testing.assert_allclose(film().concentration(at_step(10), jnp.asarray(points)), expected, atol=1e-5)
    assert np.count_nonzero(expected) < 90


def test_a_pixel_is_a_point_with_row_as_y() -> None:
    xy = jnp.array([[3 * 0.5, 2 * 0.5], [6 * 0.5, 4 * 0.5], [0.0, 0.0]])
    expected = [FRAMES[0, 2, 3], FRAMES[0, 4, 6], FRAMES[0, 0, 0]]
    np.testing.assert_allclose(film().concentration(at_step(0), xy), expected, rtol=1e-6)
    assert film().source == (0.5, 1.0)


def test_moving_the_source_moves_the_field() -> None:
    moved = film().with_source((10.5, 1.0))
    np.testing.assert_allclose(moved.concentration(at_step(0), jnp.array([11.5, 1.0])), FRAMES[0, 2, 3], rtol=1e-5)


def test_advance_counts_steps_and_wind_is_the_argument() -> None:
    movie = film(flow=Constant((0.1, 0.0)))
    state = movie.advance(random.key(0), movie.init(random.key(0)))
    assert int(state.steps) == 1
    np.testing.assert_allclose(movie.wind(state, jnp.zeros((3, 2))), np.tile([0.1, 0.0], (3, 1)), rtol=1e-6)


def test_episodes_begin_at_random_frames_only_if_the_recording_wraps() -> None:
    starts = {float(film(shuffle=True).init(random.key(seed)).start) for seed in range(30)}
    assert len(starts) > 5
    assert float(film(shuffle=True, end="clamp").init(random.key(3)).start) == 0
    assert float(film(shuffle=False).init(random.key(3)).start) == 0


def test_bytes_are_scaled_by_255() -> None:
    frames = np.full((1, 2, 2), 51, np.uint8)
    movie = PlumeRecording(frames, 1.0, 1.0, (0, 0)).field()
    np.testing.assert_allclose(movie.concentration(at_step(0), jnp.zeros(2)), 0.2, rtol=1e-6)


def test_recordings_are_compared_by_content() -> None:
    one, twin = PlumeRecording(FRAMES, **ABOUT), PlumeRecording(FRAMES.copy(), **ABOUT)
    assert one == twin
    assert hash(one) == hash(twin)
    assert one != PlumeRecording(FRAMES, 0.5, 11.0, (2, 1))
    brighter = FRAMES.copy()
    brighter[11, 4, 6] += 0.5
    assert one != PlumeRecording(brighter, **ABOUT)


def test_the_synthetic_recording_is_a_moving_plume() -> None:
    recording = synthetic_recording(num_frames=20)
    assert recording.frames.dtype == np.uint8
    assert recording == synthetic_recording(num_frames=20)
    assert recording != synthetic_recording(num_frames=20, seed=1)
    row, column = (round(part) for part in recording.source_pixel)
    assert (recording.frames[:, row, column] == 255).all()
    assert not recording.frames[:, :, : column - 1].any()
    far = recording.frames[:, :, 60].argmax(axis=1)
    assert len(set(far.tolist())) > 3


def test_numpy_files_are_memory_mapped(tmp_path: Path) -> None:
    path = tmp_path / "plume.npy"
    np.save(path, FRAMES)
    recording = PlumeRecording.load(path, **ABOUT)
    assert isinstance(recording.frames, np.memmap)
    assert recording == PlumeRecording(FRAMES, 0.5, 10.0, (2.0, 1.0))


def test_hdf5_files_contain_their_metadata(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "plume.h5"
    with h5py.File(path, "w") as file:
        file["frames"] = FRAMES
        file["mask"] = np.zeros((5, 7))
        file.attrs.update({"pixel_size": 0.5, "frame_rate": 10.0})
        file["frames"].attrs["source_pixel"] = (2, 1)
    assert PlumeRecording.load(path) == PlumeRecording(FRAMES, 0.5, 10.0, (2.0, 1.0))
    assert PlumeRecording.load(path, pixel_size=0.25).pixel_size == 0.25
    with pytest.raises(ValidationError, match="dataset"):
        PlumeRecording.load(path, dataset="smoke")
    with pytest.raises(ValidationError, match="time, y, x"):
        PlumeRecording.load(path, dataset="mask", **ABOUT)


def test_zarr_arrays_and_groups(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(tmp_path / "one.zarr"), data=FRAMES)
    array.attrs.update({**ABOUT, "source_pixel": [2, 1]})
    expected = PlumeRecording(FRAMES, 0.5, 10.0, (2.0, 1.0))
    assert PlumeRecording.load(tmp_path / "one.zarr") == expected
    group = zarr.open_group(str(tmp_path / "two.zarr"), mode="w")
    for name in ("plif", "smoke"):
        group.create_array(name, data=FRAMES)
    assert PlumeRecording.load(tmp_path / "two.zarr", dataset="plif", **ABOUT) == expected
    with pytest.raises(ValidationError, match="plif"):
        PlumeRecording.load(tmp_path / "two.zarr", **ABOUT)


@pytest.mark.parametrize(("package", "name"), [("h5py", "plume.h5"), ("zarr", "plume.zarr")])
def test_a_missing_reader_names_the_package_to_install(
    package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(MissingExtraError, match=r"tropism\[movie\]"):
        PlumeRecording.load(tmp_path / name)


@pytest.mark.parametrize("missing", ["pixel_size", "frame_rate", "source_pixel"])
def test_an_error_names_the_missing_number(missing: str, tmp_path: Path) -> None:
    np.save(tmp_path / "plume.npy", FRAMES)
    about: dict[str, Any] = {**ABOUT, missing: None}
    with pytest.raises(ValidationError) as caught:
        PlumeRecording.load(tmp_path / "plume.npy", **about)
    assert caught.value.name == missing


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="exists"):
        PlumeRecording.load(tmp_path / "nowhere.npy", **ABOUT)
    with pytest.raises(ValidationError, match=r"\.zarr"):
        PlumeRecording.load(tmp_path / "plume.avi", **ABOUT)
    (tmp_path / "plume.npy").write_bytes(b"not an array")
    with pytest.raises(ValidationError, match="cannot be read"):
        PlumeRecording.load(tmp_path / "plume.npy", **ABOUT)


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((5, 7)),
        np.zeros((0, 5, 7)),
        np.zeros((3, 1, 7)),
        np.full((2, 5, 7), np.nan),
        np.full((2, 5, 7), -0.1),
        np.full((2, 5, 7), -1),
        np.zeros((2, 5, 7), complex),
    ],
)
def test_invalid_frames_are_rejected(frames: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        PlumeRecording(frames, **ABOUT)
    assert caught.value.name == "frames"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pixel_size", 0.0),
        ("pixel_size", math.nan),
        ("frame_rate", -15.0),
        ("source_pixel", (math.nan, 1)),
    ],
)
def test_invalid_numbers_are_rejected(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        PlumeRecording(FRAMES, **{**ABOUT, name: value})


def test_an_unknown_end_is_rejected() -> None:
    with pytest.raises(ValidationError, match="end"):
        Movie((0.0, 0.0), FRAMES, (0, 0), 1.0, 1.0, end="stop")
