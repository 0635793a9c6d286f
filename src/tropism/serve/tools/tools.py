"""Sessions as tools, for agents that call tools: MCP, and the JSON-RPC of OpenEnv's clients."""

from collections.abc import Mapping
from typing import Any

from tropism.errors import ServerError, ValidationError
from tropism.serve import errors as refusal
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.live import ServedSession
from tropism.serve.session.registry import Sessions
from tropism.wire.codec import decode

SESSION_ID = {"type": "string", "description": "Which session: the `session_id` that reset returned."}
SEED = {"type": ["integer", "null"], "minimum": 0, "description": "The same seed and actions give the same episode."}
STEP = {"type": ["integer", "null"], "minimum": 0, "description": "After which step; without it, from here."}
OPTIONS = {"type": ["object", "null"], "description": "Options of the environment's reset."}


class Tools:
    """What an agent can call. Sessions are named in the arguments, so they outlive a connection."""

    def __init__(self, sessions: Sessions, environments: Mapping[str, ServedEnvironment]):
        self.sessions = sessions
        self.environments = environments

    async def described(self) -> None:
        """Before `list`: every schema is made where that delays nobody."""
        for environment in self.environments.values():
            await environment.described(self.sessions.threads)

    def list(self, environment: ServedEnvironment | None = None) -> list[dict[str, Any]]:
        """Name, description and input schema of each tool; of a session of `environment`, where one is given."""
        one = environment is not None
        actions = [environment] if one else list(self.environments.values())
        action = {
            "description": "One action; its form depends on the environment.",
            "anyOf": [_action(e) for e in actions],
        }
        which = {} if one else {"session_id": SESSION_ID}
        environment_id = {"type": "string", "enum": list(self.environments), "description": "Which environment."}
        begin = {} if one else {"environment": environment_id, "session_id": SESSION_ID}
        tools = [
            _tool(
                "reset",
                "Begin an episode. Without session_id, open a session.",
                begin | {"seed": SEED, "options": OPTIONS},
            ),
            _tool("step", "Take one action.", which | {"action": action}, [*which, "action"]),
            _tool("state", "The episode and the steps taken in it.", which, [*which]),
            _tool("fork", "A new session that goes on independently.", which | {"step": STEP, "seed": SEED}, [*which]),
        ]
        listing = _tool("list_environments", "The environments there are, with the form of their actions.", {})
        return tools if one else [listing, *tools]

    async def call(self, name: str, arguments: Mapping[str, Any], owner: str) -> Any:
        """What a tool returns; a refusal is raised."""
        arguments = dict(arguments)
        await self.described()
        if name == "list_environments":
            _check_names(name, arguments, ())
            return {"environments": [_row(environment) for environment in self.environments.values()]}
        known = {"reset": ("environment", "session_id", "seed", "options"), "step": ("session_id", "action")}
        known |= {"state": ("session_id",), "fork": ("session_id", "step", "seed")}
        if name not in known:
            raise ValidationError("tool", name, f"one of list_environments, {', '.join(known)}")
        _check_names(name, arguments, known[name])
        session_id, id = arguments.pop("session_id", None), arguments.pop("environment", None)
        if name == "reset" and session_id is None:
            return await self._open(id, arguments, owner)
        if not isinstance(session_id, str):
            raise ValidationError("session_id", session_id, "the session_id that reset returned")
        session = await self.sessions.of(session_id, owner)
        if id not in (None, session.environment.id):
            raise ValidationError("environment", id, f"{session.environment.id}, or none: the session is of that one")
        if name == "fork" and (step := arguments.pop("step", None)) is not None:
            arguments["from"] = {"step": step}
        data = arguments.get("action") if name == "step" else arguments
        if not isinstance(data, dict):
            raise ValidationError("action", data, f"an object such as {_example(session.environment)}")
        return decode(await _performed(session, name, data))

    async def _open(self, id: Any, arguments: dict[str, Any], owner: str) -> Any:
        if id is None and len(self.environments) == 1:
            id = next(iter(self.environments))
        if not isinstance(id, str) or id not in self.environments:
            raise ValidationError("environment", id, f"one of {', '.join(self.environments)}")
        session = await self.sessions.open(self.environments[id], owner)
        try:
            reply = decode(await _performed(session, "reset", arguments))
        except BaseException:
            await self.sessions.close(session)
            raise
        return reply | {"action_schema": self.environments[id].form.schema()["action"]}


async def _performed(session: ServedSession, name: str, data: dict[str, Any]) -> bytes:
    try:
        return await session.perform(name, data)
    except Exception as error:  # told here, where it is known which session it was
        raise refusal.refusal(error, tool=name, **session.named) from None


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


def _check_names(tool: str, arguments: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in arguments:
        if name not in known:
            raise ServerError(
                "VALIDATION_ERROR", f"{tool} takes no {name!r}; it takes: {', '.join(known) or 'nothing'}"
            )
