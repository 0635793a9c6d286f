"""Episodes as films: GIF, MP4, or one picture."""

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
SHORTEST = 4.0  # seconds; a short episode is filmed slowly enough to be watched
HOLD = 1.0  # seconds that the last picture stays
SUFFIXES = (".gif", ".mp4", ".png")

Act = Callable[[Session], Any]


def frames(session: Session, act: Act, steps: int, seed: int) -> Iterator[NDArray[Any]]:
    """The pictures of one episode, the first before any step."""
    for _ in moments(session, act, steps, seed):
        yield picture(session)


def moments(session: Session, act: Act, steps: int, seed: int) -> Iterator[Session]:
    """The session after its reset and after each step of one episode."""
    timestep = session.reset(seed=seed)
    yield session
    while session.step_count < steps and not (timestep.terminated or timestep.truncated):
        timestep = session.step(act(session))
        yield session


def picture(session: Session) -> NDArray[Any]:
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


def save(path: Path, pictures: Iterable[NDArray[Any]], fps: float | None = None) -> None:
    """Write a film whose last picture stays for a second; a `.png` shows the last picture.

    Without `fps` a film has 25 pictures a second, or fewer where it would last less than four seconds.
    """
    check_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".png":
        *_, last = pictures
        Image.fromarray(last).save(path)
        return
    first, rest = _head(iter(pictures), 0 if fps else round(SHORTEST * FRAMES_PER_SECOND))
    fps = fps or max(1.0, min(FRAMES_PER_SECOND, len(first) / SHORTEST))
    held = _hold_last(chain(first, rest), round(HOLD * fps))
    if path.suffix.lower() == ".mp4":
        _save_mp4(path, held, fps)
    else:
        path.write_bytes(_gif((Image.fromarray(image) for image in held), fps))


def _head(pictures: Iterator[NDArray[Any]], number: int) -> tuple[list[NDArray[Any]], Iterator[NDArray[Any]]]:
    """The first pictures, which tell whether a film is short, and the others."""
    return list(islice(pictures, number)), pictures


def _hold_last(pictures: Iterator[NDArray[Any]], times: int) -> Iterator[NDArray[Any]]:
    last = None
    for last in pictures:
        yield last
    if last is not None:
        yield from repeat(last, times)


def _gif(images: Iterator[Image.Image], fps: float) -> bytes:
    """Each picture is encoded as soon as it is drawn, so that the last one drawn ends the work."""
    film = BytesIO()
    timing = {"duration": round(1000 / fps), "loop": 0}
    next(images).save(film, "GIF", save_all=True, append_images=images, **timing)
    return film.getvalue()


def _save_mp4(path: Path, pictures: Iterator[NDArray[Any]], fps: float) -> None:
    encoder = importlib.import_module("imageio_ffmpeg")
    first = next(pictures)
    height, width, _ = first.shape
    # H.264 wants even sides; the last row or column is left out where there is one too many.
    even = (slice(height // 2 * 2), slice(width // 2 * 2))
    writer = encoder.write_frames(str(path), (width // 2 * 2, height // 2 * 2), fps=fps, macro_block_size=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # the encoder's process runs nothing of ours
        writer.send(None)
    writer.send(first[even].copy())
    for image in pictures:
        writer.send(image[even].copy())
    writer.close()
