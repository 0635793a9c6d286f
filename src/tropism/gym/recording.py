"""A wrapper that records every reset and step of a Gymnasium environment."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from tropism import record
from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.errors import StateError, ValidationError
from tropism.gym.adapter import from_gymnasium
from tropism.gym.env import GymEnv
from tropism.gym.spaces import from_gym_value, from_gymnasium_space
from tropism.record import Manifest, Writer
from tropism.record.writer import check_seed

PLAIN = ("kwargs", "max_episode_steps", "order_enforce", "disable_env_checker")  # fields of a spec that name no code
ALTERNATIVE = "a session of the environment, made by you: code named by a recording is not imported"


class Recording(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records any Gymnasium environment into a folder, like `tropism record`.

    A Tropism environment is recorded with its id and params and can be replayed from any reset. Another one, or one
    inside other wrappers, is recorded by its Gymnasium spec and can be replayed if the reset had a seed; inside
    wrappers that are not registered with its id, pass the environment to the replay.
    """

    def __init__(self, env: Any, folder: str | Path, **options: Any):
        if not isinstance(env, gymnasium.Env):
            raise ValidationError("env", env, "a gymnasium.Env; the environments of a vector are recorded one by one")
        super().__init__(env)
        self._session = env.session if isinstance(env, GymEnv) else None
        self._from_gym = None if self._session is None else from_gym_value(self._session.action_space)
        spec_and_spaces = (env.spec, env.action_space, env.observation_space)
        manifest = manifest_of(*spec_and_spaces) if self._session is None else Manifest.of(self._session)
        self.writer = Writer(folder, manifest, **options)
        self._episode: int | None = None
        self._steps = 0

    @property
    def spec(self) -> EnvSpec | None:
        """The spec without this wrapper: an environment made from it must not write into the same folder."""
        return self.env.spec

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        check_seed(seed)  # before the current episode ends
        self._episode = None
        obs, info = self.env.reset(seed=seed, options=options)
        session, id = self._session, None
        timestep = Timestep(obs, 0.0, False, False, info)
        if session is not None:
            seed, id, timestep = session.seed, session.episode_id, session.timestep
        self._episode, self._steps = self.writer.begin(seed, options, timestep, id), 0
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        episode = self._episode
        if episode is None:
            message = "no episode is being recorded: call reset() of the wrapper first"
            raise StateError("episode", None, "a reset through the wrapper", message)
        result = self.env.step(action)
        self._episode = None  # if writing fails, the rest of the episode is not recorded
        self._steps += 1
        timestep, session = Timestep(*result), self._session
        if session is not None:
            own_action = action if self._from_gym is None else self._from_gym(action)
            action, timestep = session.action_space.coerce(own_action), session.timestep
        self.writer.step(episode, self._steps, action, timestep)
        self._episode = episode
        return result

    def close(self) -> None:
        self.writer.close()
        super().close()


def session_of(manifest: Manifest) -> Session:
    """A session of the recorded environment, created by its id in Tropism's or Gymnasium's registry."""
    if manifest.env is None or "gymnasium" not in manifest.env:
        return record.session_of(manifest)
    return Session(from_gymnasium(make_registered(manifest.env["gymnasium"])))


def make_registered(spec: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make the environment of a recorded spec. Recordings are untrusted: code is imported only by the registry."""
    id, entry_point, recorded_wrappers = (spec.get(name) for name in ("id", "entry_point", "additional_wrappers"))
    known = gymnasium.registry.get(str(id))
    if known is None:
        raise ValidationError("id", id, f"an id registered with Gymnasium, or {ALTERNATIVE}")
    if entry_point != known.entry_point:
        raise ValidationError(
            "entry_point", entry_point, f"{known.entry_point!r}, the registered one of {id}, or {ALTERNATIVE}"
        )
    env = gymnasium.make(replace(known, **{name: spec[name] for name in PLAIN if name in spec}))
    wrappers = json.loads(json.dumps(asdict(env.spec or known)["additional_wrappers"], default=repr))
    if recorded_wrappers != wrappers:
        env.close()
        raise ValidationError(
            "additional_wrappers", recorded_wrappers, f"{wrappers}, the registered ones of {id}, or {ALTERNATIVE}"
        )
    return env


def manifest_of(spec: EnvSpec | None, action_space: Any, observation_space: Any) -> Manifest:
    """The manifest of recordings without a Session."""
    action, observation = from_gymnasium_space(action_space), from_gymnasium_space(observation_space)
    return Manifest.for_spaces(_serialize_spec(spec), {}, action, observation)


def _serialize_spec(spec: EnvSpec | None) -> dict[str, Any] | None:
    """The spec as JSON, from which Gymnasium can make the environment; None if that is impossible."""
    if spec is None:
        return None
    try:
        return {"gymnasium": json.loads(spec.to_json())}
    except (TypeError, ValueError):  # the entry point is a function, or a wrapper has no recorded arguments
        return None
