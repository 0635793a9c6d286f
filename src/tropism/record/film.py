"""Films of episodes: GIF, MP4, or a single PNG."""

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from tropism.core.session.session import Session
from tropism.errors import ValidationError, require_extra

FRAMES_PER_SECOND = 25
MIN_DURATION = 4.0  # seconds; short episodes are slowed down
HOLD = 1.0  # seconds that the last frame stays
SUFFIXES = (".gif", ".mp4", ".png")

Act = Callable[[Session], Any]


def play(session: Session, act: Act, steps: int, seed: int) -> Iterator[Session]:
    """Run one episode, yielding the session after the reset and after each step."""
    timestep = session.reset(seed=seed)
    yield session
    while session.step_count < steps and not (timestep.terminated or timestep.truncated):
        timestep = session.step(act(session))
        yield session


def render_frame(session: Session) -> NDArray[Any]:
    image = session.render()
    if image is None:
        raise ValidationError(
            "env", session.env, "an environment with a method render(state, params) that returns an image"
        )
    return image


def check_path(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise ValidationError("output", str(path), f"a file that ends in {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".mp4":
        require_extra("video", "writing .mp4", "imageio_ffmpeg")


def save(path: Path, images: Iterable[NDArray[Any]], fps: float | None = None) -> None:
    """Write a film that holds its last frame for a second; a `.png` contains the last frame only.

    Without `fps` a film has 25 frames per second, or fewer so that it lasts at least four seconds.
    """
    check_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".png":
        *_, last = images
        Image.fromarray(last).save(path)
        return
    rest = iter(images)
    first = list(islice(rest, 0 if fps else round(MIN_DURATION * FRAMES_PER_SECOND)))
    fps = fps or max(1.0, min(FRAMES_PER_SECOND, len(first) / MIN_DURATION))
    held = _hold_last(chain(first, rest), round(HOLD * fps))
    if path.suffix.lower() == ".mp4":
        _save_mp4(path, held, fps)
    else:
        path.write_bytes(_gif((Image.fromarray(image) for image in held), fps))


def _hold_last(images: Iterator[NDArray[Any]], times: int) -> Iterator[NDArray[Any]]:
    last = None
    for last in images:
        yield last
    if last is not None:
        yield from repeat(last, times)


def _gif(images: Iterator[Image.Image], fps: float) -> bytes:
    """Encode each image as soon as it is drawn, so that progress is reported evenly."""
    film = BytesIO()
    timing = {"duration": round(1000 / fps), "loop": 0}
    next(images).save(film, "GIF", save_all=True, append_images=images, **timing)
    return film.getvalue()


def _save_mp4(path: Path, images: Iterator[NDArray[Any]], fps: float) -> None:
    encoder = importlib.import_module("imageio_ffmpeg")
    first = next(images)
    height, width, _ = first.shape
    # H.264 needs even sides: drop an odd last row or column.
    even = (slice(height // 2 * 2), slice(width // 2 * 2))
    writer = encoder.write_frames(str(path), (width // 2 * 2, height // 2 * 2), fps=fps, macro_block_size=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # the encoder's process runs no code of this one
        writer.send(None)
    for image in chain([first], images):
        writer.send(image[even].copy())
    writer.close()
