"""Sessions as tools, for programs that open and run them over MCP."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tropism.errors import ValidationError
from tropism.serve import errors
from tropism.serve.http.openapi import json_schema
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.session.ids import all_ids
from tropism.serve.session.live import LiveSession
from tropism.serve.session.registry import SessionRegistry
from tropism.serve.session.requests import (
    ANYWHERE,
    BeginEpisodeRequest,
    EmptyRequest,
    EpisodePosition,
    ForkSessionRequest,
    OpenSessionRequest,
    SessionToolRequest,
    TakeActionRequest,
    convert,
)
from tropism.serve.tools.actions import read_action, tool
from tropism.wire.codec import decode

INSTRUCTIONS = (
    "Environments to act in. Call list_environments, open_session with the environment's name, which returns a "
    "session_id, and begin_episode, which returns the first observation. Then call take_action until done is true."
)


class ToolKind(NamedTuple):
    """The type of a tool's arguments, and its description."""

    request: Any
    description: str


TOOLS = {
    "list_environments": ToolKind(EmptyRequest, "The environments, with the form of their actions."),
    "open_session": ToolKind(OpenSessionRequest, "Open a session of an environment; begin_episode starts it."),
    "begin_episode": ToolKind(BeginEpisodeRequest, "Begin an episode; returns its first observation."),
    "take_action": ToolKind(TakeActionRequest, "Take one action."),
    "get_state": ToolKind(SessionToolRequest, "The episode and the steps taken in it."),
    "fork_session": ToolKind(ForkSessionRequest, "Fork the session into an independent one."),
    "close_session": ToolKind(SessionToolRequest, "Close the session."),
}


@dataclass(frozen=True)
class SessionTools:
    """The tools of one caller. Sessions are identified by an argument, so they do not end with a connection."""

    sessions: SessionRegistry
    environments: Mapping[str, ServedEnvironment]
    owner: str

    async def instructions(self) -> str:
        return INSTRUCTIONS

    async def list(self) -> list[dict[str, Any]]:
        actions = [await self._action_schema(each) | {"title": each.id} for each in self.environments.values()]
        spaces = {
            "Action": {"anyOf": actions, "description": "One action; its form depends on the environment."},
            "Environment": {"type": "string", "enum": list(self.environments)},
        }
        return [tool(name, kind.description, json_schema(kind.request, spaces)) for name, kind in TOOLS.items()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name not in TOOLS:
            raise ValidationError("tool", name, f"one of {', '.join(TOOLS)}")
        request = convert(arguments, TOOLS[name].request)
        match request:
            case EmptyRequest():
                return await self._list_environments()
            case OpenSessionRequest():
                return await self._open(request.environment)
            case _:
                session = await self.sessions.find(request.session_id, None, self.owner)
                return await self._call_in_session(name, session, request)

    async def _list_environments(self) -> dict[str, Any]:
        return {
            "environments": [
                {"environment": each.id, "description": each.summary, "action_schema": await self._action_schema(each)}
                for each in self.environments.values()
            ]
        }

    async def _open(self, id: str | None) -> dict[str, Any]:
        if id is None and len(self.environments) == 1:
            id = next(iter(self.environments))
        environment = self.environments.get(id or "")
        if environment is None:
            raise ValidationError("environment", id, f"one of {', '.join(self.environments)}")
        session = await self.sessions.open(environment, self.owner)
        schema = await self._action_schema(environment)
        return all_ids(session.id) | {"environment": environment.id, "action_schema": schema, "step_count": 0}

    async def _action_schema(self, environment: ServedEnvironment) -> dict[str, Any]:
        await environment.prepare_form(self.sessions.threads)
        return environment.form.schema()["action"]

    async def _call_in_session(self, name: str, session: LiveSession, request: Any) -> dict[str, Any]:
        match request:
            case BeginEpisodeRequest():
                data = {"seed": request.seed, "episode_id": request.episode_id, "options": request.options}
                return await _perform(session, "reset", data, request.request_id)
            case TakeActionRequest():
                position = EpisodePosition(after=request.after)
                return await _perform(session, "step", read_action(request.action), request.request_id, position)
            case ForkSessionRequest():
                self.sessions.check_rights("fork", self.owner)
                origin = "now" if request.step is None else {"step": request.step}
                return await _perform(session, "fork", {"from": origin, "seed": request.seed}, request.request_id)
            case _ if name == "get_state":
                return await _perform(session, "state", {}, None)
            case _:
                return {"closed": True, "step_count": await self.sessions.close(session)}


async def _perform(
    session: LiveSession,
    kind: str,
    data: dict[str, Any],
    request_id: str | None,
    position: EpisodePosition = ANYWHERE,
) -> dict[str, Any]:
    try:
        return decode(await session.perform(kind, data, request_id, position))
    except Exception as error:  # converted here, where the session is known for the log
        raise errors.to_server_error(error, tool=kind, **session.log_context) from None
