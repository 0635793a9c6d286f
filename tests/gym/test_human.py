"""render_mode="human": a window, or a warning if there is no display."""

import sys
import warnings
from typing import Any

import gymnasium
import pytest

from tropism import make
from tropism.errors import ValidationError
from tropism.gym import GymEnv, to_gymnasium


@pytest.fixture
def quiet_pygame():
    """Ignores the warnings of pygame's import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("pygame")


def human() -> GymEnv:
    return to_gymnasium(*make("GridWorld-v0"), render_mode="human")


def watch(env: GymEnv) -> None:
    env.reset(seed=0)
    env.step(1)
    assert env.render() is None


def test_the_window_shows_the_state_after_reset_and_after_each_step(monkeypatch: pytest.MonkeyPatch, quiet_pygame: Any):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = human()
    env.reset(seed=0)
    assert env.render() is None
    screen = quiet_pygame.display.get_surface()
    first = quiet_pygame.surfarray.array3d(screen).transpose(1, 0, 2)
    assert (first == env.session.render()).all()
    env.step(1)
    second = quiet_pygame.surfarray.array3d(screen).transpose(1, 0, 2)
    assert (second == env.session.render()).all()
    assert (first != second).any()
    env.close()
    env.close()
    assert not quiet_pygame.display.get_init()


def test_without_pygame_it_warns_once_and_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    env = human()
    with pytest.warns(UserWarning, match=r'pip install "tropism\[human\]"') as caught:
        watch(env)
    assert len(caught) == 1
    env.close()


def test_without_a_display_it_warns_once_and_continues(monkeypatch: pytest.MonkeyPatch, quiet_pygame: Any):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nowhere")
    quiet_pygame.display.quit()
    env = human()
    with pytest.warns(UserWarning, match="no display") as caught:
        watch(env)
    assert len(caught) == 1
    env.close()


def test_a_headless_driver_warns_too(monkeypatch: pytest.MonkeyPatch, quiet_pygame: Any):
    """SDL falls back to a driver without a display."""
    quiet_pygame.display.quit()
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.setattr(quiet_pygame.display, "get_driver", lambda: "offscreen")
    monkeypatch.setattr(quiet_pygame.display, "init", lambda: None)
    env = human()
    with pytest.warns(UserWarning, match="no display") as caught:
        watch(env)
    assert len(caught) == 1
    env.close()


def test_render_takes_another_mode(monkeypatch: pytest.MonkeyPatch, quiet_pygame: Any):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env: Any = gymnasium.make("tropism/PlumeNav-v0").unwrapped
    env.reset(seed=0)
    assert env.render(mode="rgb_array").ndim == 3
    assert env.render(mode="human") is None
    assert quiet_pygame.display.get_init()
    env.close()
    assert not quiet_pygame.display.get_init()
    with pytest.raises(ValidationError, match="ansi"):
        env.render(mode="ansi")
