"""A compiled batch of environments as a `gymnasium.vector.VectorEnv`, with reproducible episodes."""

import secrets
from collections.abc import Mapping
from typing import Any, get_args

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from tropism.core.compiled.packing import reader
from tropism.core.environment import Environment
from tropism.core.episode import check_seed, seed_from_words, seed_words
from tropism.core.native.batch_engine import make_batch_engine
from tropism.core.native.choice import EngineName
from tropism.core.params import override
from tropism.core.spaces.space import check_count
from tropism.core.transforms.auto_reset import Mode
from tropism.errors import MissingExtraError, StateError, ValidationError
from tropism.gym.env import FPS, check_render_mode
from tropism.gym.infos import Counters, copy_arrays
from tropism.gym.spaces import to_gymnasium_space

MIN_VERSION = (1, 1)  # Gymnasium's first release with auto-reset modes
RENDER_MODES = ["rgb_array"]
FLOAT64 = np.dtype(np.float64)
REBUILT = (
    *("_engine", "_program"),
    *("_view_time", "_view_obs", "_view_reward", "_view_terminated", "_view_truncated", "_view_info"),
)


class GymVectorEnv(VectorEnv):  # pyright: ignore[reportMissingTypeArgument]; not generic before Gymnasium 1.0
    """`num_envs` environments in one compiled step; environment i repeats `Session` with seed + i.

    `engine` is that of `Session`; the native one uses up to `num_threads` threads, by default one per core.
    """

    def __init__(
        self,
        env: Any,
        num_envs: Any,
        params: Any = None,
        *,
        autoreset_mode: Any = "next_step",
        render_mode: Any = None,
        engine: EngineName = "auto",
        num_threads: int | None = None,
    ):
        self.closed = True  # until construction succeeds
        check_version()
        if not isinstance(env, Environment) or not env.pure:
            raise ValidationError("env", env, "a pure environment; use gymnasium's SyncVectorEnv for a host one")
        check_render_mode(render_mode, RENDER_MODES)
        self.env = env
        self.params = override(env.default_params(), {} if params is None else params)
        self.num_envs = check_count("num_envs", num_envs)
        self.render_mode = render_mode
        self.engine: EngineName = engine
        self.num_threads = num_threads
        self._mode: Mode = resolve_autoreset_mode(autoreset_mode)
        self.metadata = {
            "render_modes": RENDER_MODES,
            "render_fps": FPS,
            "autoreset_mode": gymnasium.vector.AutoresetMode[self._mode.upper()],
        }
        self.single_action_space = to_gymnasium_space(env.action_space(self.params))
        self.single_observation_space = to_gymnasium_space(env.observation_space(self.params))
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._initialize()

    def _initialize(self) -> None:
        self._started = False
        self._counters = Counters(self.num_envs)
        self._finished = np.zeros(self.num_envs, bool)
        self._connect()
        self.closed = False

    def _connect(self) -> None:
        """Set the engine and readers, which are not pickled."""
        self._engine = make_batch_engine(
            self.env, self.params, self.num_envs, self._mode, self.engine, self.num_threads
        )
        self._program = program = self._engine.program
        out, viewer = program.out, self._engine.viewer
        self._view_time = viewer(program.carry.episode.time)
        self._view_obs = viewer(out.obs)
        self._view_reward = viewer(out.reward)
        self._view_terminated = viewer(out.terminated)
        self._view_truncated = viewer(out.truncated)
        self._view_info = viewer(out.info) if out.info else None

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed that reproduces the current episode of each environment."""
        self._require_episode("read seeds")
        keys = reader(self._program.carry.episode.key)(self._engine.words)
        return tuple(seed_from_words(key) for key in keys)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start episodes in all environments, or in those of `options["reset_mask"]`. An int seeds environment i with
        seed + i."""
        if self.closed:
            raise self._state_error("reset")
        seeds = expand_seeds(seed, self.num_envs)
        mask, options = self._mask(options)
        row = self._program.params_layout.write(self.env.configure(self.params, options)) if options else None
        super().reset(seed=seeds[0])
        self._set_rows(mask, row)
        self._reset(seeds, mask)
        own = copy_arrays(self._view_info()) if self._view_info else {}
        first = {name: own[name] for name in self._program.reset_info}
        return copy_arrays(self._view_obs()), self._counters.infos_where(mask, self._view_time(), first)

    def _reset(self, seeds: list[int | None], mask: NDArray[Any]) -> None:
        seeded = np.array([not self._started or seed is not None for seed in seeds])
        filled = [secrets.randbits(64) if seed is None else seed for seed in seeds]
        self._engine.reset(np.stack([seed_words(seed) for seed in filled]), seeded, mask)
        self._started = True
        self._counters.start_episodes(mask, seeds)
        self._finished = self._finished & ~mask

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self.closed or not self._started:
            raise self._state_error("step")
        engine, finished = self._engine, self._finished
        packed_actions = engine.read_actions(actions)
        if self._mode == "disabled" and finished.any():
            raise self._state_error("step", np.flatnonzero(finished))
        before = self._view_time().copy() if self._mode == "same_step" else None
        engine.step(packed_actions)
        reward = self._view_reward().astype(FLOAT64)
        terminated, truncated = self._view_terminated().copy(), self._view_truncated().copy()
        self._finished = done = terminated | truncated
        self._counters.rewards += reward
        infos = self._infos(finished) if before is None else self._same_step_infos(before, done)
        return copy_arrays(self._view_obs()), reward, terminated, truncated, infos

    def _infos(self, restarted: NDArray[Any]) -> dict[str, Any]:
        """The infos of all environments, including those that this step restarted."""
        self._counters.restart_episodes(restarted)
        if self._engine.rows is not None:
            self._set_rows(restarted, None)
        own = copy_arrays(self._view_info()) if self._view_info else {}
        return self._counters.step_infos(self._view_time(), own, restarted, self._program.reset_info)

    def _same_step_infos(self, before: NDArray[Any], done: NDArray[Any]) -> dict[str, Any]:
        """As `_infos`, with final observations and infos of the episodes that this step ended."""
        if not np.count_nonzero(done):
            return self._infos(done)
        out, words = self._program.out, self._engine.words
        final_obs, final_info = (reader(part)(words) for part in (out.final_obs, out.final_info))
        final = self._counters.final_infos(before + 1, final_obs, final_info, done)
        return self._infos(done) | final

    def _set_rows(self, which: NDArray[Any], row: NDArray[Any] | None) -> None:
        """Set the params of the environments in `which` to `row`, or to the default: options apply to one episode."""
        rows, base = self._engine.rows, self._engine.base
        if row is None and rows is None:
            return
        rows = np.tile(base, (self.num_envs, 1)) if rows is None else rows.copy()
        rows[which] = base if row is None else row
        self._engine.set_rows(rows if (rows != base).any() else None)

    def _mask(self, options: Any) -> tuple[NDArray[Any], dict[str, Any]]:
        """`reset_mask`, and the options for the environment."""
        if options is not None and not isinstance(options, Mapping):
            raise ValidationError("options", options, "None or a dict")
        rest = dict(options or {})
        mask = rest.pop("reset_mask", None)
        if mask is None:
            return np.ones(self.num_envs, bool), rest
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            expected = f"a bool array of shape ({self.num_envs},) with at least one True"
            raise ValidationError("options['reset_mask']", mask, expected)
        if not self._started and not mask.all():
            raise self._state_error("reset only some environments")
        return mask.copy(), rest

    def render(self) -> tuple[Any, ...] | None:
        """A (H, W, 3) uint8 picture of each environment in `rgb_array` mode."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() shows nothing: make the environment with render_mode='rgb_array'")
            return None
        self._require_episode("render")
        pictures = self._engine.render()
        return None if pictures is None else tuple(pictures)

    def close_extras(self, **kwargs: Any) -> None:
        self._started = False

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in REBUILT}
        return {**state, "words": np.array(self._engine.words), "rows": self._engine.rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        words, rows = state.pop("words"), state.pop("rows")
        self.__dict__.update(state)
        self._connect()
        self._engine.load(words)
        self._engine.set_rows(rows)

    def _require_episode(self, call: str) -> None:
        if not self._started:
            raise self._state_error(call)

    def _state_error(self, call: str, finished: Any = None) -> StateError:
        if finished is not None:
            state, advice = "TERMINATED or TRUNCATED", "reset those first, with options={'reset_mask': …}"
            return StateError("finished", finished, advice, f"cannot {call}: {finished} are {state}; {advice}")
        state, advice = ("CLOSED", "make another") if self.closed else ("CREATED", "call reset() first")
        return StateError("lifecycle", state, advice, f"cannot {call}: the vector is {state}; {advice}")


def expand_seeds(seed: Any, num_envs: int) -> list[int | None]:
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, list | tuple | np.ndarray) and np.ndim(seed) == 1:  # pyright: ignore[reportArgumentType]
        if len(seed) != num_envs:
            raise ValidationError("seed", seed, f"an int, or a list of {num_envs}")
        return [None if each is None else check_seed(each) for each in seed]
    first = check_seed(seed)
    return [first + number for number in range(num_envs)]


def resolve_autoreset_mode(mode: Any) -> Mode:
    for name in get_args(Mode):
        gym_mode = gymnasium.vector.AutoresetMode[name.upper()]
        if mode in (name, gym_mode, gym_mode.value):
            return name
    raise ValidationError("autoreset_mode", mode, f"one of {', '.join(get_args(Mode))}")


def check_version() -> None:
    installed = tuple(int(part) for part in gymnasium.__version__.split(".")[:2])
    if installed < MIN_VERSION:
        required = ".".join(map(str, MIN_VERSION))
        raise MissingExtraError(
            "gymnasium",
            gymnasium.__version__,
            f"Gymnasium {required} or later",
            f"the vector environment needs Gymnasium {required} or later, but {gymnasium.__version__} is installed: "
            f'pip install "gymnasium>={required}"',
        )
