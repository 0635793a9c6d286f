"""A Gymnasium environment whose every reset and step is recorded."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from tropism.core.episode import Timestep
from tropism.errors import StateError, ValidationError
from tropism.gym.env import GymEnv
from tropism.gym.spaces import from_gymnasium_space, inward
from tropism.record import Manifest, Writer
from tropism.record.writer import check_seed

PLAIN = ("kwargs", "max_episode_steps", "order_enforce", "disable_env_checker")  # of a spec: they name no code
GIVE = "a session of the environment, made by you: a recording is not asked what to import"


class Recording(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records what passes through it into a folder, as `tropism record` does; any Gymnasium environment will do.

    One of ours is recorded with its id and params, and replays from any reset; another one, or one of ours inside
    other wrappers, by its Gymnasium spec, and replays where the reset was given a seed; inside wrappers that its
    id is not registered with, you make the environment for that.
    """

    def __init__(self, env: Any, folder: str | Path, **options: Any):
        if not isinstance(env, gymnasium.Env):
            raise ValidationError("env", env, "a gymnasium.Env; the environments of a vector are recorded one by one")
        super().__init__(env)
        self._session = env.session if isinstance(env, GymEnv) else None
        self._inward = None if self._session is None else inward(self._session.action_space)
        given = (env.spec, env.action_space, env.observation_space)
        manifest = manifest_of(*given) if self._session is None else Manifest.of(self._session)
        self.writer = Writer(folder, manifest, **options)
        self._episode: int | None = None
        self._steps = 0

    @property
    def spec(self) -> EnvSpec | None:
        """That of the environment alone: another one made by it must not write into the same folder."""
        return self.env.spec

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        check_seed(seed)  # before the environment leaves the episode it is in
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
            message = "no episode is being recorded: call reset() of the recording first"
            raise StateError("episode", None, "a reset through the recording", message)
        result = self.env.step(action)
        self._episode = None  # unless the step is written, the rest of the episode would have a gap
        self._steps += 1
        timestep, session = Timestep(*result), self._session
        if session is not None:
            own = action if self._inward is None else self._inward(action)
            action, timestep = session.action_space.coerce(own), session.timestep
        self.writer.step(episode, self._steps, action, timestep)
        self._episode = episode
        return result

    def close(self) -> None:
        self.writer.close()
        super().close()


def registered(spec: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment of a recorded spec; what to import for it only the registry says, as a recording is anybody's."""
    id, entry_point, above = (spec.get(name) for name in ("id", "entry_point", "additional_wrappers"))
    known = gymnasium.registry.get(str(id))
    if known is None:
        raise ValidationError("id", id, f"an id that is registered with Gymnasium here, or {GIVE}")
    if entry_point != known.entry_point:
        raise ValidationError("entry_point", entry_point, f"{known.entry_point!r}, where {id} is from here, or {GIVE}")
    env = gymnasium.make(replace(known, **{name: spec[name] for name in PLAIN if name in spec}))
    wrappers = json.loads(json.dumps(asdict(env.spec or known)["additional_wrappers"], default=repr))
    if above != wrappers:
        env.close()
        raise ValidationError("additional_wrappers", above, f"{wrappers}, as {id} has them here, or {GIVE}")
    return env


def manifest_of(spec: EnvSpec | None, action_space: Any, observation_space: Any) -> Manifest:
    """The manifest of recordings that are not of a session of ours."""
    action, observation = from_gymnasium_space(action_space), from_gymnasium_space(observation_space)
    return Manifest.for_spaces(_written(spec), {}, action, observation)


def _written(spec: EnvSpec | None) -> dict[str, Any] | None:
    """How Gymnasium makes an environment again; None where it cannot."""
    if spec is None:
        return None
    try:
        return {"gymnasium": json.loads(spec.to_json())}
    except (TypeError, ValueError):  # a function for an entry point, a wrapper that does not say how it was made
        return None
