"""The window of render_mode="human"."""

import importlib
import os
import warnings
from typing import Any

import numpy as np

HEADLESS_DRIVERS = ("dummy", "offscreen")  # SDL's fallbacks without a display
INSTALL = 'pip install "tropism[human]"'


class Window:
    """Opens with the first picture. If it cannot open, it warns once and shows nothing."""

    def __init__(self, title: str, fps: int):
        self._title = title
        self._fps = fps
        self._pygame: Any = None
        self._clock: Any = None
        self._screen: Any = None
        self._disabled = False

    def show(self, picture: Any) -> None:
        if picture is None or self._disabled:
            return
        height, width = picture.shape[:2]
        if self._screen is None:
            self._open((width, height))
        if self._screen is None:
            return
        surface = self._pygame.surfarray.make_surface(np.transpose(picture, (1, 0, 2)))
        self._screen.blit(surface, (0, 0))
        self._pygame.event.pump()
        self._pygame.display.flip()
        self._clock.tick(self._fps)

    def _open(self, size: tuple[int, int]) -> None:
        try:
            self._pygame = importlib.import_module("pygame")
        except ImportError:
            self._disable(f"pygame is not installed: {INSTALL}")
            return
        try:
            self._pygame.display.init()
            if self._pygame.display.get_driver() in HEADLESS_DRIVERS and "SDL_VIDEODRIVER" not in os.environ:
                raise self._pygame.error("SDL found no video device")
            self._screen = self._pygame.display.set_mode(size)
        except self._pygame.error as error:
            self._pygame.display.quit()
            self._disable(f"there is no display ({error}); render_mode='rgb_array' needs none")
            return
        self._pygame.display.set_caption(self._title)
        self._clock = self._pygame.time.Clock()

    def _disable(self, reason: str) -> None:
        self._disabled = True
        warnings.warn(f"render_mode='human' shows nothing: {reason}", stacklevel=2)

    def close(self) -> None:
        if self._screen is not None:
            self._screen = None
            self._pygame.display.quit()
