"""A session runs one environment, episode by episode. It holds all mutable state of an episode."""

import secrets
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any

from tropism.core.adapters.class_based import as_environment, name_of
from tropism.core.environment import Environment
from tropism.core.episode import Timestep, check_episode_id, check_options, check_seed
from tropism.core.native.choice import EngineName
from tropism.core.params import override, params_structure, read_params, write_params
from tropism.core.registry import identify, make
from tropism.core.session import snapshot
from tropism.core.session.engine import Engine, make_engine
from tropism.core.session.host import HostEngine, no_workspace
from tropism.core.workspace import Workspace
from tropism.errors import StateError, ValidationError
from tropism.wire.messages import State


class EnvironmentState(Enum):
    """The lifecycle state of a session."""

    CREATED = "created"
    READY = "ready"
    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    CLOSED = "closed"


READY = EnvironmentState.READY
WITHOUT_EPISODE = (EnvironmentState.CREATED, EnvironmentState.CLOSED)
SAVED_FIELDS = ("seed", "total_reward", "episode_count")

ADVICE = {
    EnvironmentState.CREATED: "call reset() first",
    EnvironmentState.TERMINATED: "call reset() to start the next episode",
    EnvironmentState.TRUNCATED: "call reset() to start the next episode",
    EnvironmentState.CLOSED: "make a new Session",
}


class Session:
    """One running environment: enforces the lifecycle, derives seeds, counts steps, and rejects invalid actions.

    Observations are copies, so that changes by the caller do not affect the session. With `copies=False`, a step
    of a host environment returns the session's own observation, for callers that only read it. `engine` selects how a
    pure environment runs: "native" (machine code), "xla", or "auto": native if verified to give the bits of XLA.

    >>> session = Session(env)
    >>> first = session.reset(seed=0)
    >>> second = session.step(1)
    """

    def __init__(self, env: Any, params: Any = None, *, copies: bool = True, engine: EngineName = "auto"):
        env = as_environment(env)
        if not isinstance(env, Environment):
            raise ValidationError("env", env, "an Environment; make(id) returns (env, params)")
        self.env = env
        self.engine: EngineName = engine
        self.params = override(env.default_params(), {} if params is None else params)
        self.action_space = env.action_space(self.params)
        self.observation_space = env.observation_space(self.params)
        self._initialize(make_engine(env, self.params, copies, engine))

    def _initialize(self, engine: Engine) -> None:
        self.seed: int | None = None
        self.total_reward = 0.0
        self.episode_count = 0
        self._lifecycle = EnvironmentState.CREATED
        self._episode_id: str | None = None  # created on first access
        self.step_count = 0
        self._engine = engine

    @property
    def lifecycle(self) -> EnvironmentState:
        return self._lifecycle

    @property
    def state(self) -> State:
        return State(episode_id=self.episode_id, step_count=self.step_count)

    @property
    def episode_id(self) -> str | None:
        if self._episode_id is None and self.seed is not None:
            self._episode_id = str(uuid.uuid4())
        return self._episode_id

    @property
    def timestep(self) -> Timestep:
        """The timestep that the last reset or step returned."""
        self._require_episode("timestep")
        return self._engine.last()

    def reset(self, *, seed: Any = None, options: Any = None, episode_id: Any = None) -> Timestep:
        """Start an episode; without a seed, the first one is random and each later one derived from the previous."""
        if self._lifecycle is EnvironmentState.CLOSED:
            raise self._state_error("reset")
        if seed is not None:
            seed = self._check_seed(seed)
        if episode_id is not None:
            check_episode_id(episode_id)
        if self.env.traits.takes_episode_id:
            episode_id = episode_id or str(uuid.uuid4())
            options = {**check_options(options or {}), "episode_id": episode_id}
        params = self._episode_params(options)
        count = self.episode_count + 1 if seed is None else 1
        if seed is None and self.seed is not None:
            seed, timestep = self._engine.reset_next(params, options or {})
        else:
            seed = secrets.randbits(64) if seed is None else seed
            timestep = self._engine.reset(seed, params, options or {})
        self.seed = seed
        self.total_reward = 0.0
        self.episode_count = count
        self._episode_id = episode_id
        self.step_count = 0
        self._lifecycle = READY
        return timestep

    def step(self, action: Any) -> Timestep:
        """Take one action. A step that fails changes nothing, but it ends an episode that cannot be replayed."""
        if self._lifecycle is not READY:
            raise self._state_error("step")
        try:
            timestep = self._engine.step(action)
        except BaseException:
            self._end_if_damaged()
            raise
        _, reward, terminated, truncated, _ = timestep
        self.step_count += 1
        self.total_reward += reward
        if terminated:
            self._lifecycle = EnvironmentState.TERMINATED
        elif truncated:
            self._lifecycle = EnvironmentState.TRUNCATED
        return timestep

    @property
    def is_damaged(self) -> bool:
        """Whether the environment raised, so that the next use of its state replays the episode."""
        return self._engine.is_damaged

    def _end_if_damaged(self) -> None:
        if self._engine.is_damaged and not self.env.traits.replayable:
            self._lifecycle = EnvironmentState.CREATED
            self._engine.close()

    def files(self) -> dict[str, int]:
        """The files of the episode: their sizes in bytes, by path."""
        return self._workspace().sizes()

    def read_file(self, path: str) -> bytes:
        return self._workspace().read(path)

    def write_file(self, path: str, data: bytes) -> None:
        """Create or replace a file of the episode; forks and snapshots have it too."""
        if self._lifecycle is not READY:
            raise self._state_error("write a file")
        if not isinstance(data, bytes):
            raise ValidationError("data", data, "bytes")
        if not isinstance(self._engine, HostEngine):
            raise no_workspace(self.env)
        self._engine.write_file(path, data)

    def recorded_outcome(self) -> Any:
        """What a replay of the last step must not compute again; None if there is nothing."""
        return self._engine.recorded_outcome() if isinstance(self._engine, HostEngine) else None

    def recall(self, outcome: Any) -> None:
        """Set the recorded outcome of the next step, which is replayed."""
        if isinstance(self._engine, HostEngine):
            self._engine.recall(outcome)

    def _workspace(self) -> Workspace:
        self._require_episode("access files")
        workspace = self._engine.workspace() if isinstance(self._engine, HostEngine) else None
        if workspace is None:
            raise no_workspace(self.env)
        return workspace

    def render(self) -> Any:
        """An image of the state, (H, W, 3) uint8; None if the environment has none."""
        self._require_episode("render")
        return self._engine.render()

    def describe(self) -> str:
        """The last observation as text."""
        self._require_episode("describe")
        state = self._engine.state()
        return self._engine.env.describe(state, self._engine.last().obs, self._engine.params())

    def agent_position_in_image(self) -> tuple[float, float] | None:
        """The agent's position as fractions of the image's width and height; None if it has none."""
        self._require_episode("locate the agent")
        state = self._engine.state()
        return self._engine.env.agent_position_in_image(state, self._engine.params())

    def state_fields(self) -> dict[str, Any]:
        """The fields that the environment adds to the state of a served session; none before the first reset."""
        if self._lifecycle in WITHOUT_EPISODE:
            return {}
        return self.env.state_fields(self._engine.state(), self._engine.params())

    def parse(self, text: str) -> Any:
        """The action in a language agent's text."""
        return self.env.parse(text, self.params)

    def snapshot(self) -> bytes:
        """The session as bytes, not a pickle, from which `restore` continues in any process."""
        self._require_episode("snapshot")
        return self._dump()

    @classmethod
    def restore(
        cls, data: bytes, env: Environment | None = None, params: Any = None, *, engine: EngineName = "auto"
    ) -> "Session":
        """The session of a snapshot. Without `env`, the environment is made by the id in the snapshot."""
        header, body = snapshot.decode(data)
        if env is None:
            env = _rebuild(header["env"])
        if params is None:
            params = read_params(env.default_params(), header["params"])
        session = cls(env, params, engine=engine)
        session._load(header, body)
        return session

    def fork(self, seed: Any = None) -> "Session":
        """An independent session that continues from here; with a seed, with different random numbers."""
        self._require_episode("fork")
        seed = None if seed is None else check_seed(seed)
        twin = self._twin(self._engine.fork(seed))
        twin._episode_id = None
        twin.seed = self.seed if seed is None else seed
        return twin

    def reseed(self, seed: Any) -> None:
        """Draw the rest of the episode from another seed, as a fork with this seed does."""
        self._require_episode("reseed")
        seed = check_seed(seed)
        self._engine.reseed(seed)
        self.seed = seed

    def restore_point(self) -> Callable[[], "Session"]:
        """A function that returns a session at the current step of this episode; cheap until it is called."""
        self._require_episode("create a restore point")
        current, restore = self._twin(self._engine), self._engine.restore_point()
        current._episode_id = self.episode_id
        return lambda: current._twin(restore())

    def new_like(self) -> "Session":
        """A session of the same environment before its first reset; cheaper than the constructor."""
        twin = self._twin(self._engine.new_like())
        twin._initialize(twin._engine)
        return twin

    def _twin(self, engine: Engine) -> "Session":
        """A session with the same attributes and another engine; copy.copy would replay the episode."""
        twin = object.__new__(Session)
        twin.__dict__.update(self.__dict__)
        twin._engine, twin.env = engine, engine.env
        return twin

    def close(self) -> None:
        """Release all resources; closing twice is allowed."""
        if self._lifecycle is not EnvironmentState.CLOSED:
            self._lifecycle = EnvironmentState.CLOSED
            self._engine.close()

    def __repr__(self) -> str:
        progress = "" if self.seed is None else f", seed={self.seed}, step_count={self.step_count}"
        return f"Session({name_of(self.env)}, {self._lifecycle.name}{progress})"

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.env, self.params, self._dump(), self.engine)

    def _check_seed(self, seed: Any) -> int:
        if not self.env.traits.seedable:
            expected = "None: its reset takes no seed, and it is not declared deterministic"
            raise ValidationError("seed", seed, expected, f"{name_of(self.env)} cannot be seeded; expected {expected}")
        return check_seed(seed)

    def _episode_params(self, options: Any) -> Any:
        if options is None:
            return self.params
        check_options(options)
        params = self.env.configure(self.params, options) if options else self.params
        if self.env.pure and params_structure(params) != params_structure(self.params):
            raise ValidationError("options", dict(options), "params with the same structure and shapes")
        return params

    def _dump(self) -> bytes:
        header = {field: getattr(self, field) for field in SAVED_FIELDS}
        header |= {
            "step_count": self.step_count,
            "episode_id": self.episode_id,
            "lifecycle": self._lifecycle.value,
            "env": identify(self.env),
            "engine": None,
        }
        header["params"] = write_params(self.params)
        body = b""
        if self._lifecycle not in WITHOUT_EPISODE:
            header["engine"], body = self._engine.dump()
        return snapshot.encode(header, body)

    def _load(self, header: dict[str, Any], body: bytes) -> None:
        if header["engine"] is not None:
            self._engine.load(header["engine"], body)
        for field in SAVED_FIELDS:
            setattr(self, field, header[field])
        self.step_count = header["step_count"]
        self._episode_id = header["episode_id"]
        self._lifecycle = EnvironmentState(header["lifecycle"])

    def _require_episode(self, call: str) -> None:
        if self._lifecycle in WITHOUT_EPISODE:
            raise self._state_error(call)

    def _state_error(self, call: str) -> StateError:
        state = self._lifecycle
        return StateError(
            "lifecycle", state, ADVICE[state], f"cannot {call}: the session is {state.name}; {ADVICE[state]}"
        )


def _rebuild(source: Any) -> Environment:
    if source is None or "id" not in source:
        raise ValidationError("env", None, "the environment of the snapshot, which has no registered id")
    return make(source["id"], **source["arguments"])[0]


def _unpickle(env: Environment, params: Any, data: bytes, engine: EngineName) -> Session:
    return Session.restore(data, env, params, engine=engine)
