"""Runs a host environment with plain calls. An episode is defined by its seed, options and actions."""

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from types import MethodType
from typing import Any

from tropism.core.adapters.class_based import name_of
from tropism.core.environment import Environment
from tropism.core.episode import Timestep, host_key_function
from tropism.core.session.compiled import action_reader
from tropism.core.session.copying import defensive_copy
from tropism.core.session.replay import ReplayEntry, replay
from tropism.core.spaces import Discrete
from tropism.core.workspace import Workspace
from tropism.errors import ActionError, DivergedError, StateError, ValidationError

log = logging.getLogger(__name__)

as_timestep = partial(tuple.__new__, Timestep)  # faster than calling the class


class HostEngine:
    """Runs a host environment and keeps the transcript from which its episode can be replayed."""

    def __init__(self, env: Environment, params: Any, copies: bool = True):
        self.env = env
        self.copies = copies
        self.space = env.action_space(params)
        self.obs_space = env.observation_space(params)
        # Plain methods: Equinox wraps every bound method in a module, which makes calls slow.
        coerce = partial(type(self.space).coerce, self.space)
        self._coerce = action_reader(self.space) if isinstance(self.space, Discrete) else coerce
        self._env_step = MethodType(type(env).step, env)
        self._env_info, self._state_is_lost = _overridden(env, "info"), _overridden(env, "state_is_lost")
        self._recorded_outcome = _overridden(env, "recorded_outcome")
        self._uses_keys, self._completes_info = env.traits.uses_keys, env.traits.complete_info
        self._state: Any = None
        self._last: Any = None
        self._params: Any = params
        self._base_params = params
        self._seed = 0
        self._key = host_key_function(0)
        self._options: dict[str, Any] = {}
        self._transcript: list[Any] = []  # since the reset: actions, and a ReplayEntry for anything else
        self._time = 0
        self.is_damaged = False  # a failed call may have changed the state

    def reset(self, seed: int, params: Any, options: Mapping[str, Any]) -> Timestep:
        try:
            obs, state = self.env.reset(seed, params)
            last = Timestep(obs, 0.0, False, False, self.env.info(state, params))
        except BaseException:
            self.is_damaged = self._state is not None and self.env.traits.replayable
            raise
        self.close()
        self._state, self._params, self.is_damaged = state, params, False
        self._seed, self._options, self._transcript, self._time = seed, dict(options), [], 0
        self._key = host_key_function(seed)
        self._last = last
        return self.last()

    def reset_next(self, params: Any, options: Mapping[str, Any]) -> tuple[int, Timestep]:
        seed = self._key(-1)
        return seed, self.reset(seed, params, options)

    def step(self, action: Any) -> Timestep:
        value = self._coerce(action)
        if self.is_damaged or (self._state_is_lost is not None and self._state_is_lost(self._state)):
            self._restore_state()
        time = self._time + 1
        try:
            key = self._key(time) if self._uses_keys else 0
            entry = value if type(value) is int else defensive_copy(value)  # before the environment can change it
            obs, state, reward, done, info = self._env_step(key, self._state, value, self._params)
            if self._recorded_outcome is not None and (outcome := self._recorded_outcome(state)) is not None:
                entry = ReplayEntry("step", entry, None, outcome)
            if not self._completes_info:
                info = dict(info) if self._env_info is None else {**self._env_info(state, self._params), **info}
            terminated, truncated = bool(info.pop("terminated", done)), bool(info.pop("truncated", False))
            last = (obs, reward := float(reward), terminated, truncated, info)
            shown = defensive_copy(obs) if self.copies else obs
        except BaseException as error:
            self.is_damaged = not isinstance(error, ActionError)
            raise
        self._state, self._time, self._last = state, time, last
        self._transcript.append(entry)
        return as_timestep((shown, reward, terminated, truncated, info.copy() if self.copies else info))

    def recall(self, outcome: Any) -> None:
        """Set the outcome of the next step, which is replayed."""
        self.env.recall(self._state, outcome)

    def recorded_outcome(self) -> Any:
        """The outcome of the last step, if a replay must not compute it again."""
        return _as_entry(self._transcript[-1]).outcome if self._transcript else None

    def workspace(self) -> Workspace | None:
        return self.env.workspace(self.state(), self._params)

    def write_file(self, path: str, data: bytes) -> None:
        workspace = self.workspace()
        if workspace is None:
            raise no_workspace(self.env)
        self._state = workspace.write(path, data)
        self._transcript.append(ReplayEntry("upload", (path, data)))

    def last(self) -> Timestep:
        """A copy, so that changes by the caller do not affect the digest of a snapshot."""
        obs, reward, terminated, truncated, info = self._last
        return Timestep(defensive_copy(obs), reward, terminated, truncated, dict(info))

    def params(self) -> Any:
        return self._params

    def state(self) -> Any:
        self._restore_state()
        return self._state

    def _restore_state(self) -> None:
        """Replay the episode if its state is lost, or damaged by a failed call."""
        if (self.is_damaged or self.env.state_is_lost(self._state)) and self.env.traits.replayable:
            restored = self.restore_point()()
            self.close()
            self.__dict__.update(restored.__dict__)

    def render(self) -> Any:
        self._restore_state()
        return self.env.render(self._state, self._params)

    def new_like(self) -> "HostEngine":
        return HostEngine(self.env, self._base_params, self.copies)

    def fork(self, seed: int | None) -> "HostEngine":
        if seed is not None:
            self._check_reseedable(seed)
        twin = self.restore_point()()
        if seed is not None:
            twin.reseed(seed)
        return twin

    def restore_point(self) -> Callable[[], "HostEngine"]:
        """A function that returns an engine at the current step, by replay; nothing is replayed before it is called.

        A state that is copied instead is copied at once.
        """
        if self._copies_state:
            dumped = self.dump()
            return lambda: self._load_copy(dumped)
        self._check_replayable()
        reset, last, state = (self._seed, self._options), self._last, self._state
        transcript, length = self._transcript, len(self._transcript)

        def restore() -> HostEngine:
            twin = HostEngine(self.env.copy_at_start(state), self._base_params, self.copies)
            twin.replay(*reset, [_as_entry(item) for item in transcript[:length]], self._digest(last))
            return twin

        return restore

    @property
    def _copies_state(self) -> bool:
        return self.env.traits.copyable and not self.env.traits.replayable

    def _load_copy(self, dumped: tuple[dict[str, Any], bytes]) -> "HostEngine":
        twin = self.new_like()
        twin.load(*dumped)
        return twin

    def _check_reseedable(self, seed: int) -> None:
        if not self.env.traits.reseedable:
            raise ValidationError("seed", seed, f"None: {name_of(self.env)} draws its randomness when it is reset")

    def reseed(self, seed: int) -> None:
        """Draw the rest of the episode from another seed."""
        self._check_reseedable(seed)
        self._key = host_key_function(seed)
        self._transcript.append(ReplayEntry("reseed", seed))

    def dump(self) -> tuple[dict[str, Any], bytes]:
        header: dict[str, Any] = {"seed": self._seed, "options": self._options}
        if self._copies_state:
            obs, *rest = self._last
            header |= {"time": self._time, "last": [self.obs_space.to_json(obs), *rest]}
            return header, self.env.save_state(self._state, self._params)
        self._check_replayable()
        transcript = [self._event(_as_entry(item)) for item in self._transcript]
        return header | {"transcript": transcript, "digest": self._digest(self._last)}, b""

    def _check_replayable(self) -> None:
        if not self.env.traits.replayable:
            message = f"{name_of(self.env)} declares that it cannot be replayed"
            raise StateError("replayable", False, "a replayable environment", message)

    def _event(self, entry: ReplayEntry) -> dict[str, Any]:
        """The entry as JSON."""
        if entry.kind == "reseed":
            return {"seed": entry.value}
        if entry.kind == "upload":
            path, data = entry.value
            return {"file": path, "data": b64encode(data).decode()}
        outcome = {} if entry.outcome is None else {"outcome": entry.outcome}
        return {"action": self.space.to_json(entry.value), **outcome}

    def load(self, header: dict[str, Any], body: bytes) -> None:
        if "last" in header:
            self._load_state(header, body)
            return
        transcript = [self._entry(event) for event in header["transcript"]]
        self.replay(header["seed"], header["options"], transcript, header["digest"])

    def _load_state(self, header: dict[str, Any], body: bytes) -> None:
        obs, *rest = header["last"]
        self._params = self.env.configure(self._base_params, header["options"])
        self._state = self.env.load_state(body, self._params)
        self._last = Timestep(self.obs_space.from_json(obs), *rest)
        self._seed, self._options, self._time = header["seed"], header["options"], header["time"]
        self._key = host_key_function(self._seed)

    def _entry(self, event: dict[str, Any]) -> ReplayEntry:
        """The inverse of `_event`."""
        if "seed" in event:
            return ReplayEntry("reseed", event["seed"])
        if "file" in event:
            return ReplayEntry("upload", (event["file"], b64decode(event["data"])))
        return ReplayEntry("step", self.space.from_json(event["action"]), outcome=event.get("outcome"))

    def replay(self, seed: int, options: dict[str, Any], transcript: list[ReplayEntry], digest: str) -> None:
        """Replay the episode and compare its last observation."""
        params = self.env.configure(self._base_params, options)
        begin = ReplayEntry("reset", {"seed": seed, "params": params, "options": options})
        try:
            for _ in replay(self, [begin, *transcript]):
                pass
            if self._digest(self._last) != digest:
                steps = len(transcript)
                message = f"after {steps} replayed steps the observation differs"
                raise DivergedError("replay", steps, "the same observation", message)
        except BaseException:
            self.close()
            raise

    def _digest(self, last: tuple[Any, ...]) -> str:
        obs, *outcome, _ = last
        text = json.dumps([self.obs_space.to_json(obs), *outcome], sort_keys=True)
        return blake2b(text.encode(), digest_size=8).hexdigest()

    def close(self) -> None:
        state, self._state = self._state, None
        if state is None:
            return
        try:
            self.env.close(state)
        except (Exception, SystemExit):  # a user's code may raise anything, and close() never fails
            log.exception("%s raised when it was closed", type(self.env).__name__)


def _as_entry(item: Any) -> ReplayEntry:
    """An item of a transcript as an entry."""
    return item if type(item) is ReplayEntry else ReplayEntry("step", item)


def _overridden(env: Environment, name: str) -> Callable[..., Any] | None:
    """The method of this name; None if the environment does not override it."""
    method = getattr(type(env), name)
    return None if method is getattr(Environment, name) else MethodType(method, env)


def no_workspace(env: Environment) -> StateError:
    message = f"{name_of(env)} has no workspace, so it has no files"
    return StateError("workspace", None, "an environment with a workspace", message)
