"""Films last long enough to be watched."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tropism.record import film


def shot(path: Path, number: int, fps: float | None = None) -> tuple[float, float]:
    """Save a film of so many pictures; returns the seconds it takes and those of its last picture."""
    film.save(path, (np.full((8, 8, 3), 10 * k % 256, np.uint8) for k in range(number)), fps)
    durations: list[float] = []
    with Image.open(path) as image:
        for k in range(image.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            image.seek(k)
            durations.append(image.info["duration"] / 1000)
    return sum(durations), durations[-1]


@pytest.mark.parametrize(("number", "seconds"), [(4, 4.0), (20, 4.0), (250, 10.0)])
def test_a_short_episode_is_shown_slowly_and_its_last_picture_stays(number: int, seconds: float, tmp_path: Path):
    whole, last = shot(tmp_path / "film.gif", number)
    assert whole == pytest.approx(seconds + film.HOLD, abs=0.3)
    assert last >= film.HOLD


def test_the_rate_can_be_chosen(tmp_path: Path):
    whole, _ = shot(tmp_path / "film.gif", 20, fps=10)
    assert whole == pytest.approx(2.0 + film.HOLD, abs=0.2)
