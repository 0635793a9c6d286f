"""One environment as a `gymnasium.Env`: a Session in Gymnasium's clothes."""

import sys
from typing import Any, ClassVar

import gymnasium

from tropism.core.environment import Environment
from tropism.core.session.session import EnvironmentState, Session
from tropism.errors import ValidationError
from tropism.gym.human import Window
from tropism.gym.spaces import inward, outward, to_gymnasium_space

RENDER_MODES = ["human", "rgb_array"]
FPS = 30


class Seed(int):
    """A seed in `info`. Gymnasium's vectors gather plain ints in an array that cannot hold None beside them."""


class GymEnv(gymnasium.Env[Any, Any]):
    """The environment as Gymnasium's libraries expect it; `session` does all the work."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": RENDER_MODES, "render_fps": FPS}  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, env: Environment, params: Any = None, render_mode: Any = None):
        check_render_mode(render_mode, RENDER_MODES)
        self.session = Session(env, params)
        self.render_mode = render_mode
        self.action_space = to_gymnasium_space(self.session.action_space)
        self.observation_space = to_gymnasium_space(self.session.observation_space)
        self._seed: Seed | None = None
        self._connect()

    def _connect(self) -> None:
        self._inward = inward(self.session.action_space)
        self._outward = outward(self.session.observation_space)
        self._window = self._make_window() if self.render_mode == "human" else None
        self._asked_for: Window | None = None  # by render(mode="human") in another mode

    def _make_window(self) -> Window:
        return Window(type(self.session.env).__name__, FPS)

    @property
    def lifecycle(self) -> EnvironmentState:
        return self.session.lifecycle

    @property
    def episode_id(self) -> str | None:
        return self.session.episode_id

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        session = self.session
        first = session.reset(seed=seed, options=options)
        self._seed = None if seed is None else Seed(seed)
        super().reset(seed=self._seed)
        obs = first.obs if self._outward is None else self._outward(first.obs)
        if self._window is not None:
            self._window.show(session.render())
        return obs, {
            **first.info,
            "seed": self._seed,
            "step_count": 0,
            "episode_count": session.episode_count,
            "total_reward": 0.0,
        }

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        session = self.session
        if self._inward is not None:
            action = self._inward(action)
        obs, reward, terminated, truncated, info = session.step(action)
        if self._outward is not None:
            obs = self._outward(obs)
        if self._window is not None:
            self._window.show(session.render())
        return (
            obs,
            reward,
            terminated,
            truncated,
            {
                **info,
                "seed": self._seed,
                "step_count": session.step_count,
                "episode_count": session.episode_count,
                "total_reward": session.total_reward,
            },
        )

    def render(self) -> Any:
        """A (H, W, 3) uint8 picture in `rgb_array` mode; None in `human` mode, where a window shows it."""
        return self._rendered(self.render_mode)

    def _rendered(self, mode: Any) -> Any:
        if mode is None:
            gymnasium.logger.warn("render() shows nothing: make the environment with a render_mode, such as rgb_array")
            return None
        check_render_mode(mode, RENDER_MODES)
        picture = self.session.render()
        if mode == "rgb_array":
            return picture
        window = self._window or self._asked_for or self._make_window()
        if window is not self._window:
            self._asked_for = window
        window.show(picture)
        return None

    def close(self) -> None:
        self.session.close()
        for window in (self._window, self._asked_for):
            if window is not None:
                window.close()

    def __getstate__(self) -> dict[str, Any]:
        made_anew = ("_inward", "_outward", "_window", "_asked_for")
        return {name: value for name, value in self.__dict__.items() if name not in made_anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()


class SearchEnv(GymEnv):
    """A search for a smell, whose `render` takes a mode; all others have Gymnasium's signature."""

    def render(self, mode: Any = None) -> Any:
        """As the environment's `render_mode`, or as `mode`: "rgb_array" or "human"."""
        return self._rendered(self.render_mode if mode is None else mode)


def to_gymnasium(env: Environment, params: Any = None, render_mode: Any = None) -> GymEnv:
    """Any environment as a `gymnasium.Env`."""
    searches = sys.modules.get("tropism.envs.plume.nav")  # loaded by whoever made one
    is_search = searches is not None and isinstance(env, searches.PlumeNav)
    return (SearchEnv if is_search else GymEnv)(env, params, render_mode)


def check_render_mode(render_mode: Any, known: list[str]) -> None:
    if render_mode is not None and render_mode not in known:
        raise ValidationError("render_mode", render_mode, f"None or one of {', '.join(known)}")
