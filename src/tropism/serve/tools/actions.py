"""The actions of one session as tools: all that an agent may do, and nothing else."""

import re
from typing import Any

from tropism.core.session.session import EnvironmentState
from tropism.errors import ValidationError
from tropism.serve import errors
from tropism.serve.http.openapi import json_schema
from tropism.serve.session.json_form import public_reply
from tropism.serve.session.live import LiveSession
from tropism.serve.session.requests import ANYWHERE, ActRequest, ConfirmingActRequest, EpisodePosition, convert
from tropism.wire.codec import decode, encode

ACT, AFTER = "act", "after"
RESERVED = ("reset", "step", "state", "close")  # by OpenEnv
RETURNS = "Returns the observation, the reward, and whether the episode is done."


class ActionTools:
    """The tool of an agent that plays one session: its action, named after the message type, or else `act`."""

    def __init__(self, session: LiveSession):
        self._session = session
        form, language = session.environment.form, session.environment.env.language
        self._message = form.action_message()
        self.name = ACT if self._message is None else tool_name(language.tool or self._message.__name__)

    async def instructions(self) -> str:
        """How to act, and the current observation, which no tool returns before the first action."""
        how = f"Act in one environment with the tool {self.name} until done is true."
        if self._session.log.is_doubtful:
            count = self._session.session.step_count
            how += f" The machine failed: steps after step {count} may be lost. Confirm this once, with after: {count}."
        if self._session.session.lifecycle is EnvironmentState.CREATED:
            return f"{how} No episode has begun yet."
        return f"{how} Now: {(await current_observation(self._session)).decode()}"

    async def list(self) -> list[dict[str, Any]]:
        form, is_doubtful = self._session.environment.form, self._session.log.is_doubtful
        request = ConfirmingActRequest if is_doubtful else ActRequest
        schema = json_schema(request, {"Action": form.schema()["action"]})
        if self._message is None:
            return [tool(ACT, f"Take one action. {RETURNS}", schema)]
        about = " ".join((self._message.__doc__ or "Take one action.").split())
        own = form.message_schema()
        if is_doubtful:  # a field of the message with this name comes first
            own = own | {"properties": {AFTER: schema["properties"][AFTER]} | own["properties"]}
        return [tool(self.name, f"{about} {RETURNS}", own)]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        session = self._session
        try:
            if name != self.name:
                raise ValidationError("tool", name, self.name)
            action, position = self._read_arguments(arguments)
            body = await session.perform("step", action, None, position)
            return decode(public_reply(body, session.environment.env.private_info))
        except Exception as error:  # converted here, where the session is known for the log
            raise errors.to_server_error(error, tool=name, **session.log_context) from None

    def _read_arguments(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], EpisodePosition]:
        """The action, and where the agent expects the episode if it says so."""
        if self._message is None:
            request = convert(arguments, ConfirmingActRequest)
            return read_action(request.action), EpisodePosition(request.after)
        if AFTER not in arguments or AFTER in self._session.environment.form.message_schema()["properties"]:
            return arguments, ANYWHERE
        position = convert({"action": {}, AFTER: arguments[AFTER]}, ConfirmingActRequest).after
        return {name: value for name, value in arguments.items() if name != AFTER}, EpisodePosition(position)


async def current_observation(session: LiveSession) -> bytes:
    """The current observation in the form of a step's reply, without private info."""
    await session.wait_durable()
    inline, form = session.can_run_inline("state", {}), session.environment.form
    return await session.run(inline, lambda: encode(form.reply(session.session, session.session.timestep)))


def read_action(action: dict[str, Any] | str) -> dict[str, Any]:
    """The action of a tool call: an object, or words."""
    return {"text": action} if isinstance(action, str) else action


def tool_name(name: str) -> str:
    """A name for a tool from that of a message type: DropDiscAction becomes drop_disc."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Action")).lower()
    return snake if snake and snake not in RESERVED else ACT


def tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": schema}
