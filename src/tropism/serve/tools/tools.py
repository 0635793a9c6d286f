"""Sessions as tools, for MCP and for the JSON-RPC of OpenEnv's clients."""

from collections.abc import Mapping
from typing import Any

from tropism.errors import ServerError, ValidationError
from tropism.serve import errors
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import LiveSession
from tropism.serve.session.registry import SessionRegistry
from tropism.wire.codec import decode

SESSION_ID = {"type": "string", "description": "The `session_id` returned by reset."}
SEED = {"type": ["integer", "null"], "minimum": 0, "description": "The same seed and actions give the same episode."}
STEP = {"type": ["integer", "null"], "minimum": 0, "description": "The step to fork at; by default, the current one."}
OPTIONS = {"type": ["object", "null"], "description": "Reset options of the environment."}


class Tools:
    """The tools of an agent. Sessions are identified by an argument, so they do not end with a connection."""

    def __init__(self, sessions: SessionRegistry, environments: Mapping[str, ServedEnvironment]):
        self.sessions = sessions
        self.environments = environments

    async def prepare_schemas(self) -> None:
        """Build all schemas in a thread; call before `list`."""
        for environment in self.environments.values():
            await environment.prepare_form(self.sessions.threads)

    def list(self, environment: ServedEnvironment | None = None) -> list[dict[str, Any]]:
        """Name, description and input schema of each tool; with `environment`, for one session of it."""
        single = environment is not None
        actions = [environment] if single else list(self.environments.values())
        action = {
            "description": "One action; its form depends on the environment.",
            "anyOf": [_action(e) for e in actions],
        }
        session_arguments = {} if single else {"session_id": SESSION_ID}
        environment_id = {"type": "string", "enum": list(self.environments), "description": "Which environment."}
        reset_arguments = {} if single else {"environment": environment_id, "session_id": SESSION_ID}
        tools = [
            _tool(
                "reset",
                "Begin an episode. Without session_id, open a session.",
                reset_arguments | {"seed": SEED, "options": OPTIONS},
            ),
            _tool("step", "Take one action.", session_arguments | {"action": action}, [*session_arguments, "action"]),
            _tool("state", "The episode and the steps taken in it.", session_arguments, [*session_arguments]),
            _tool(
                "fork",
                "Fork the session into an independent one.",
                session_arguments | {"step": STEP, "seed": SEED},
                [*session_arguments],
            ),
        ]
        list_environments = _tool("list_environments", "The environments, with the form of their actions.", {})
        return tools if single else [list_environments, *tools]

    async def call(self, name: str, arguments: Mapping[str, Any], owner: str) -> Any:
        """Call a tool; returns its result."""
        arguments = dict(arguments)
        await self.prepare_schemas()
        if name == "list_environments":
            _check_names(name, arguments, ())
            return {"environments": [_row(environment) for environment in self.environments.values()]}
        arguments_of = {"reset": ("environment", "session_id", "seed", "options"), "step": ("session_id", "action")}
        arguments_of |= {"state": ("session_id",), "fork": ("session_id", "step", "seed")}
        if name not in arguments_of:
            raise ValidationError("tool", name, f"one of list_environments, {', '.join(arguments_of)}")
        _check_names(name, arguments, arguments_of[name])
        session_id, id = arguments.pop("session_id", None), arguments.pop("environment", None)
        if name == "reset" and session_id is None:
            return await self._open(id, arguments, owner)
        if not isinstance(session_id, str):
            raise ValidationError("session_id", session_id, "the session_id that reset returned")
        session = await self.sessions.find(session_id, None, owner)
        if id not in (None, session.environment.id):
            raise ValidationError(
                "environment", id, f"{session.environment.id}, the environment of this session, or none"
            )
        if name == "fork" and (step := arguments.pop("step", None)) is not None:
            arguments["from"] = {"step": step}
        data = arguments.get("action") if name == "step" else arguments
        if not isinstance(data, dict):
            raise ValidationError("action", data, f"an object such as {_example(session.environment)}")
        return decode(await _perform(session, name, data))

    async def _open(self, id: Any, arguments: dict[str, Any], owner: str) -> Any:
        if id is None and len(self.environments) == 1:
            id = next(iter(self.environments))
        if not isinstance(id, str) or id not in self.environments:
            raise ValidationError("environment", id, f"one of {', '.join(self.environments)}")
        session = await self.sessions.open(self.environments[id], owner)
        try:
            reply = decode(await _perform(session, "reset", arguments))
        except BaseException:
            await self.sessions.close(session)
            raise
        return reply | {"action_schema": self.environments[id].form.schema()["action"]}


async def _perform(session: LiveSession, name: str, data: dict[str, Any]) -> bytes:
    try:
        return await session.perform(name, data)
    except Exception as error:  # converted here, where the session is known for the log
        raise errors.to_server_error(error, tool=name, **session.log_context) from None


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required or [], "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema}


def _action(environment: ServedEnvironment) -> dict[str, Any]:
    return environment.form.schema()["action"] | {"title": environment.id}


def _row(environment: ServedEnvironment) -> dict[str, Any]:
    action = environment.form.schema()["action"]
    return {"environment": environment.id, "description": environment.summary, "action_schema": action}


def _example(environment: ServedEnvironment) -> str:
    fields = list(environment.form.schema()["action"]["properties"])
    return "{" + ", ".join(f'"{field}": …' for field in fields[:1]) + "}"


def _check_names(tool: str, arguments: dict[str, Any], arguments_of: tuple[str, ...]) -> None:
    for name in arguments:
        if name not in arguments_of:
            raise ServerError(
                "VALIDATION_ERROR", f"{tool} takes no {name!r}; it takes: {', '.join(arguments_of) or 'nothing'}"
            )
