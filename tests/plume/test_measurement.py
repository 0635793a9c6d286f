"""Statistics of fields and recordings against formulae and NumPy."""

import json
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from typer.testing import CliRunner

from tropism.cli import app
from tropism.errors import ValidationError
from tropism.plume import Field, Gaussian, PlumeRecording, measure, statistics
from tropism.plume.wind import Constant

P, SIGMA = 0.3, 2.0
WIND = (3.0, 4.0)  # downwind is (0.6, 0.8)


class Blinking(Field):
    """Present with the probability P in each step, in the wind's direction, Gaussian across it."""

    source: Any = (1.0, 2.0)

    @property
    def step_duration(self) -> float:
        return 0.1

    def init(self, key: Any) -> Any:
        return random.bernoulli(key, P)

    def advance(self, key: Any, state: Any) -> Any:
        return random.bernoulli(key, P)

    def concentration(self, state: Any, xy: Any) -> Any:
        across = -0.8 * (xy[..., 0] - 1) + 0.6 * (xy[..., 1] - 2)
        return state * jnp.exp(-(across**2) / (2 * SIGMA**2))

    def wind(self, state: Any, xy: Any) -> Any:
        return jnp.broadcast_to(jnp.array(WIND), xy.shape)


def test_profiles_follow_the_wind_and_have_the_moments_of_the_field() -> None:
    found = measure(Blinking(), (-20.0, -20.0), (20.0, 20.0), distance=5.0, threshold=0.5, num_steps=4000)
    np.testing.assert_allclose(found.wind, WIND, rtol=1e-5)
    shape = np.exp(-(found.across.position**2) / (2 * SIGMA**2))
    np.testing.assert_allclose(found.across.mean, P * shape, rtol=0.03, atol=1e-6)
    np.testing.assert_allclose(found.across.deviation, math.sqrt(P * (1 - P)) * shape, rtol=0.03, atol=1e-6)
    np.testing.assert_allclose(found.across.intermittency, np.where(shape >= 0.5, P, 0), atol=0.01)
    np.testing.assert_allclose(found.along.mean, P, rtol=0.03)
    assert found.along.position[-1] == pytest.approx(18 / 0.8)  # to the upper edge
    assert found.across.width == pytest.approx(SIGMA, rel=0.05)
    # A whiff of n steps has the probability P^(n−1)·(1 − P), a blank the same with 1 − P.
    assert found.whiffs.seconds.mean() == pytest.approx(0.1 / (1 - P), rel=0.03)
    assert found.blanks.seconds.mean() == pytest.approx(0.1 / P, rel=0.03)
    assert found.intermittency == pytest.approx(P, abs=0.01)
    assert found.deviation == pytest.approx(math.sqrt(P * (1 - P)), rel=0.03)


def test_a_static_field_has_profiles_without_whiffs() -> None:
    found = measure(Gaussian((10.0, 50.0), flow=Constant((-1.0, 0.0))), (0.0, 0.0), (100.0, 100.0), num_steps=5)
    np.testing.assert_allclose(found.along.mean, np.exp(-(found.along.position**2) / 800), rtol=1e-5)
    assert found.along.position[-1] == pytest.approx(10)  # upwind of the centre: the wind blows to −x
    assert (len(found.whiffs.seconds), found.whiffs.exponent, found.density) == (0, None, None)
    assert not found.spectrum[1].any()


def test_a_film_has_the_statistics_of_its_pixels() -> None:
    rng = np.random.default_rng(0)
    frames = (rng.uniform(size=(400, 9, 21)) * (rng.uniform(size=(400, 9, 21)) < 0.4)).astype(np.float32)
    recording = PlumeRecording(frames, 0.5, 20.0, (4, 0), wind=(1.0, 0.0))
    found = measure(recording, distance=5.0, threshold=0.2)
    pixel = frames[:, 4, 10]
    assert found.dt == 0.05
    assert found.mean == pytest.approx(pixel.mean(), rel=1e-5)
    whiffs, blanks = statistics.encounters(pixel, 0.2, 0.05)
    np.testing.assert_allclose(np.sort(found.whiffs.seconds), np.sort(whiffs))
    np.testing.assert_allclose(np.sort(found.blanks.seconds), np.sort(blanks))
    np.testing.assert_allclose(found.across.position[[0, 12, 24]], [-2, 0, 2], atol=1e-12)
    np.testing.assert_allclose(
        found.across.mean[[0, 12, 24]], [frames[:, row, 10].mean() for row in (0, 4, 8)], rtol=1e-5
    )
    np.testing.assert_allclose(found.spectrum[1], statistics.spectrum(pixel, 0.05)[1], rtol=1e-4, atol=1e-9)


def test_impossible_distances_and_thresholds_are_rejected() -> None:
    with pytest.raises(ValidationError, match="way to the edge"):
        measure(Gaussian(), (0.0, 0.0), (127.0, 127.0), distance=100.0)
    with pytest.raises(ValidationError, match="plume reaches"):
        measure(Gaussian(sigma=1e-3), (0.0, 0.0), (127.0, 127.0))
    with pytest.raises(ValidationError, match="low"):
        measure(Gaussian())


def test_the_command_prints_and_draws_the_statistics_of_an_environment(tmp_path: Path) -> None:
    short = ["--steps", "50", "--realisations", "2"]
    result = CliRunner().invoke(
        app, ["plume", "stats", "PlumeNavMeander-v0", *short, "-o", str(tmp_path / "plume.png")]
    )
    assert result.exit_code == 0, result.output
    assert "Celani" in result.output
    assert (tmp_path / "plume.png").read_bytes().startswith(b"\x89PNG")
    printed = CliRunner().invoke(app, ["plume", "stats", "PlumeNavMeander-v0", *short, "--json"])
    found = json.loads(printed.output)
    assert found["wind"][0] == pytest.approx(2.0, rel=0.01)
    assert len(found["across"]["mean"]) == len(found["along"]["intermittency"]) == 25
    assert isinstance(CliRunner().invoke(app, ["plume", "stats", "CartPole-v1"]).exception, ValidationError)


def test_the_command_measures_a_file(tmp_path: Path) -> None:
    frames = np.random.default_rng(1).uniform(size=(6, 50, 9)).astype(np.float32)  # (y, t, x)
    np.save(tmp_path / "film.npy", frames)
    about = {"pixel_size": 1, "frame_rate": 10, "source_pixel": [2, 0], "axes": "ytx", "wind": [1, 0]}
    options = [word for name, value in about.items() for word in ("--arg", f"{name}={json.dumps(value)}")]
    result = CliRunner().invoke(app, ["plume", "stats", str(tmp_path / "film.npy"), "--json", *options])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["mean"] == pytest.approx(frames[2, :, 4].mean(), rel=1e-5)
