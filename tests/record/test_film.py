"""Duration of films."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tropism.record import film


def save_film(path: Path, number: int, fps: float | None = None) -> tuple[float, float]:
    """Save a film of `number` frames; returns its duration and that of its last frame, in seconds."""
    film.save(path, (np.full((8, 8, 3), 10 * k % 256, np.uint8) for k in range(number)), fps)
    durations: list[float] = []
    with Image.open(path) as image:
        for k in range(image.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            image.seek(k)
            durations.append(image.info["duration"] / 1000)
    return sum(durations), durations[-1]


@pytest.mark.parametrize(("number", "seconds"), [(4, 4.0), (20, 4.0), (250, 10.0)])
def test_short_episode_is_slowed_down_and_holds_its_last_frame(number: int, seconds: float, tmp_path: Path):
    whole, last = save_film(tmp_path / "film.gif", number)
    assert whole == pytest.approx(seconds + film.HOLD, abs=0.3)
    assert last >= film.HOLD


def test_fps_option(tmp_path: Path):
    whole, _ = save_film(tmp_path / "film.gif", 20, fps=10)
    assert whole == pytest.approx(2.0 + film.HOLD, abs=0.2)
