"""An environment as a class of the `openenv` package, for its `create_app` and for trainers that take such classes."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tropism.core.registry import find, make
from tropism.errors import MissingExtraError
from tropism.serve.session.environment import ServedEnvironment
from tropism.wire.codec import decode, encode
from tropism.wire.schemas import python_type


def as_class(id: str, **arguments: Any) -> type:
    """A subclass of OpenEnv's `Environment` that plays this environment; `arguments` are those of `make`.

    `Action` and `Observation` of the class are its pydantic messages, so that
    `create_app(cls, cls.Action, cls.Observation)` serves it.
    """
    if find_spec("openenv") is None:
        install = 'pip install "openenv>=0.10"'
        raise MissingExtraError("openenv", None, install, f"tropism.openenv needs the openenv package: {install}")
    types: Any = import_module("openenv.core.env_server.types")
    base: Any = import_module("openenv.core.env_server.interfaces").Environment
    served = ServedEnvironment(id, *make(id, **arguments), find(id).summary)
    schema = served.form.annotated_schema()

    class AdaptedEnvironment(base):
        """A session of the environment."""

        SUPPORTS_CONCURRENT_SESSIONS = True
        Action = _model(schema["action"], types.Action)
        Observation = _model(schema["observation"], types.Observation)

        def __init__(self) -> None:
            super().__init__()
            self._session = served.new_session()

        def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Any:
            return self._observe(self._session.reset(seed=seed, episode_id=episode_id, options=options or None))

        def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:  # noqa: ARG002  OpenEnv's
            fields = action.model_dump(exclude_unset=True, exclude={"metadata"})
            return self._observe(self._session.step(served.read_action(fields)))

        def _observe(self, timestep: Any) -> Any:
            reply = decode(encode(served.form.reply(self._session, timestep)))
            return self.Observation(**reply["observation"], reward=reply["reward"], done=reply["done"])

        @property
        def state(self) -> Any:
            state = self._session.state
            own = self._session.state_fields()
            return types.State(episode_id=state.episode_id, step_count=state.step_count, **own)

        def close(self) -> None:
            self._session.close()

    name = id.rpartition("-")[0] or id
    AdaptedEnvironment.__name__ = AdaptedEnvironment.__qualname__ = name
    return AdaptedEnvironment


def _model(schema: dict[str, Any], base: Any) -> Any:
    """A pydantic model with the fields of a schema; those that it does not require may be absent."""
    required = schema.get("required", [])
    fields: dict[str, Any] = {}
    for name, part in schema["properties"].items():
        if name not in base.model_fields:
            kind = python_type(part)
            fields[name] = (kind, ...) if name in required else (kind | None, None)
    return import_module("pydantic").create_model(schema["title"], __base__=base, **fields)
