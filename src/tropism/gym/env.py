"""One environment as a `gymnasium.Env`: an adapter of `Session`."""

from dataclasses import fields
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from tropism.core.environment import Environment
from tropism.core.native.choice import EngineName
from tropism.core.search_task import SearchTask
from tropism.core.session.session import EnvironmentState, Session
from tropism.core.spaces import Discrete
from tropism.core.wrapper import Wrapper
from tropism.errors import ValidationError
from tropism.gym.human import Window
from tropism.gym.spaces import from_gym_value, to_gym_value, to_gymnasium_space

RENDER_MODES = ["human", "rgb_array"]
FPS = 30
# Key codes of pygame, which are those of SDL.
ARROWS = {"right": 1073741903, "left": 1073741904, "down": 1073741905, "up": 1073741906}


class Seed(int):
    """A seed in `info`. Gymnasium's vectors collect plain ints in an array that cannot also hold None."""


class GymEnv(gymnasium.Env[Any, Any]):
    """A `gymnasium.Env` that runs the environment in `session`."""

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": FPS}  # noqa: RUF012
    _spec: EnvSpec | None = None

    def __init__(self, env: Environment, params: Any = None, render_mode: Any = None, *, engine: EngineName = "auto"):
        if not has_picture(env):
            self.metadata = {"render_modes": [], "render_fps": FPS}
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.session = Session(env, params, engine=engine)
        self.render_mode = render_mode
        self.action_space = to_gymnasium_space(self.session.action_space)
        self.observation_space = to_gymnasium_space(self.session.observation_space)
        self._seed: Seed | None = None
        self._connect()

    def _connect(self) -> None:
        self._from_gym = from_gym_value(self.session.action_space)
        self._to_gym = to_gym_value(self.session.observation_space)
        self._window = self._make_window() if self.render_mode == "human" else None
        self._extra_window: Window | None = None  # opened by render(mode="human") in another mode

    def _make_window(self) -> Window:
        return Window(type(self.session.env).__name__, FPS)

    @property
    def lifecycle(self) -> EnvironmentState:
        return self.session.lifecycle

    @property
    def episode_id(self) -> str | None:
        return self.session.episode_id

    @property
    def spec(self) -> EnvSpec | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Gymnasium's spec, with the environment's own step limit."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if spec is not None:
            spec.max_episode_steps = step_limit(self.session.params)
        self._spec = spec

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """The keys of `gymnasium.utils.play`: digits, and the arrow keys of actions that are named after them."""
        space = self.session.action_space
        if not isinstance(space, Discrete):
            return {}
        numbers = range(int(space.start), int(space.start + space.n))
        digits = {(ord(str(number)),): number for number in numbers if 0 <= number <= 9}
        words = dict(zip(self.session.env.language.actions, numbers, strict=False))
        return digits | {(code,): words[word] for word, code in ARROWS.items() if word in words}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        session = self.session
        first = session.reset(seed=seed, options=options)
        self._seed = None if seed is None else Seed(seed)
        super().reset(seed=self._seed)
        obs = first.obs if self._to_gym is None else self._to_gym(first.obs)
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
        if self._from_gym is not None:
            action = self._from_gym(action)
        obs, reward, terminated, truncated, info = session.step(action)
        if self._to_gym is not None:
            obs = self._to_gym(obs)
        if self._window is not None:
            self._window.show(session.render())
        info["seed"], info["step_count"] = self._seed, session.step_count
        info["episode_count"], info["total_reward"] = session.episode_count, session.total_reward
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        """A (H, W, 3) uint8 picture in `rgb_array` mode; None in `human` mode, where a window shows it."""
        return self._render(self.render_mode)

    def _render(self, mode: Any) -> Any:
        if mode is None:
            gymnasium.logger.warn("render() shows nothing: make the environment with a render_mode, such as rgb_array")
            return None
        check_render_mode(mode, self.metadata["render_modes"])
        picture = self.session.render()
        if mode == "rgb_array":
            return picture
        window = self._window or self._extra_window or self._make_window()
        if window is not self._window:
            self._extra_window = window
        window.show(picture)
        return None

    def close(self) -> None:
        self.session.close()
        for window in (self._window, self._extra_window):
            if window is not None:
                window.close()

    def __getstate__(self) -> dict[str, Any]:
        rebuilt = ("_from_gym", "_to_gym", "_window", "_extra_window")
        return {name: value for name, value in self.__dict__.items() if name not in rebuilt}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._connect()


class SearchEnv(GymEnv):
    """A search, whose `render` takes a mode; other environments have Gymnasium's signature."""

    def render(self, mode: Any = None) -> Any:
        """Render in `mode`, "rgb_array" or "human"; by default in the environment's `render_mode`."""
        return self._render(self.render_mode if mode is None else mode)


def to_gymnasium(
    env: Environment, params: Any = None, render_mode: Any = None, *, engine: EngineName = "auto"
) -> GymEnv:
    """Convert any environment to a `gymnasium.Env`."""
    return (SearchEnv if isinstance(env, SearchTask) else GymEnv)(env, params, render_mode, engine=engine)


def has_picture(env: Environment) -> bool:
    """Whether the environment, or the one inside its wrappers, overrides `render`."""
    while isinstance(env, Wrapper):
        env = env.env
    return type(env).render is not Environment.render


def step_limit(params: Any) -> int | None:
    """The param `max_steps`; None if there is none."""
    return int(params.max_steps) if any(field.name == "max_steps" for field in fields(params)) else None


def check_render_mode(render_mode: Any, known: list[str]) -> None:
    if render_mode is not None and render_mode not in known:
        raise ValidationError("render_mode", render_mode, f"None or one of {', '.join(known)}")
