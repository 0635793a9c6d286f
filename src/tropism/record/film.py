"""Episodes as films: GIF, MP4, or one picture."""

import importlib
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from tropism.core.session.session import Session
from tropism.errors import ValidationError, require_extra

FRAMES_PER_SECOND = 25
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
        raise ValidationError("env", session.env, "an environment that draws itself (it has no render)")
    return image


def check_path(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise ValidationError("output", str(path), f"a file that ends in {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".mp4":
        require_extra("video", "writing .mp4", "imageio_ffmpeg")


def save(path: Path, pictures: Iterator[NDArray[Any]]) -> None:
    """Write a film; a `.png` shows the last picture."""
    check_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".mp4":
        _save_mp4(path, pictures)
        return
    images = (Image.fromarray(image) for image in pictures)
    if path.suffix.lower() == ".png":
        *_, last = images
        last.save(path)
    else:
        path.write_bytes(_gif(images))


def _gif(images: Iterator[Image.Image]) -> bytes:
    """Each picture is encoded as soon as it is drawn, so that the last one drawn ends the work."""
    film = BytesIO()
    timing = {"duration": 1000 // FRAMES_PER_SECOND, "loop": 0}
    next(images).save(film, "GIF", save_all=True, append_images=images, **timing)
    return film.getvalue()


def _save_mp4(path: Path, pictures: Iterator[NDArray[Any]]) -> None:
    encoder = importlib.import_module("imageio_ffmpeg")
    first = next(pictures)
    height, width, _ = first.shape
    # H.264 wants even sides; the last row or column is left out where there is one too many.
    even = (slice(height // 2 * 2), slice(width // 2 * 2))
    writer = encoder.write_frames(
        str(path), (width // 2 * 2, height // 2 * 2), fps=FRAMES_PER_SECOND, macro_block_size=1
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # the encoder's process runs nothing of ours
        writer.send(None)
    writer.send(first[even].copy())
    for image in pictures:
        writer.send(image[even].copy())
    writer.close()
