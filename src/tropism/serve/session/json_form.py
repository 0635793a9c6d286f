"""The JSON form of an environment's actions and observations."""

from collections.abc import Collection
from dataclasses import asdict, fields, is_dataclass
from typing import Any
from zlib import crc32

import numpy as np

from tropism.core.adapters.class_based import name_of
from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.core.spaces import Box, Dict, Model, Record, Space, Text
from tropism.errors import ValidationError
from tropism.wire.codec import decode, encode

WHOLE = "value"  # the field of an action or observation that has no fields
CHANNELS = (1, 3)  # of an image: greyscale, or RGB
HOISTED = ("reward", "done")  # fields of the reply, not of its observation
METADATA_SCHEMA = {"type": "object", "description": "Further information; may be empty."}
TEXT_SCHEMA = {"type": "string", "description": "The observation as text."}


class JsonForm:
    """Reads actions and writes replies of one environment.

    A record or a Dict has its own fields; any other value is the field `value`. The text form of actions and
    observations is the field `text`. The names in `hidden` are removed from `info`.
    """

    def __init__(self, session: Session, hidden: tuple[str, ...] = ()):
        self._hidden = frozenset(hidden)
        self.action_space = session.action_space
        self.observation_space = session.observation_space
        self._language = session.env.language
        self._action_fields = _fields(self.action_space)
        self._observation_fields = _fields(self.observation_space)
        self._message_names = _message_names(self.observation_space)
        self._message_field = _only_field(self._language.action_type)
        self.reads_words = self._action_fields is None and not isinstance(self.action_space, Text)
        self._reads_fields = isinstance(self.action_space, Record | Model)
        self._digest_names = [name for name in self._message_names or () if name != "metadata"]
        self._moved_names = self._language.metadata_fields if self._message_names else ()
        self._top_names = [name for name in self._message_names or () if name not in self._moved_names]
        self._name = name_of(session.env)
        self._is_record = isinstance(self.observation_space, Record)

    def action_text(self, data: dict[str, Any]) -> str | None:
        """The text of an action in text form; None if it is not in that form."""
        if "text" not in data or "text" in (self._action_fields or ()):
            return None
        if not isinstance(data["text"], str) or len(data) > 1:
            raise ValidationError("action", data, "'text' alone, a string, or the action itself")
        return data["text"]

    def action(self, data: dict[str, Any]) -> Any:
        """The action with these fields; the session has yet to validate it."""
        if "metadata" in data and "metadata" not in (self._action_fields or ()):
            data = {name: value for name, value in data.items() if name != "metadata"}  # OpenEnv's clients send one
        if self._reads_fields:
            return data  # the session reads a dict of fields
        if self._action_fields is not None:
            return self.action_space.from_json(data)
        if len(data) == 1:
            for name in ("value", self._message_field):
                if name in data:
                    return data[name]  # the session reads lists and numbers as it reads arrays
        names = "'value'" if self._message_field is None else f"'value' or {self._message_field!r}"
        raise ValidationError("action", data, f"one field: {names}, {self.action_space!r}; or 'text', a string")

    def action_message(self) -> type | None:
        """The message type of actions; None if they are bare values, or the fields of a Dict."""
        return self.action_space.cls if isinstance(self.action_space, Record | Model) else self._language.action_type

    def message_schema(self) -> dict[str, Any]:
        """The JSON Schema of `action_message`."""
        schema = _with_titles(self.action_space.json_schema(), self._language.actions)
        return schema if self._reads_fields else _one_field(str(self._message_field), schema)

    def write_action(self, action: Any) -> dict[str, Any]:
        """The inverse of `action`; a record is given as a dict of its fields."""
        data = action if self._reads_fields else self.action_space.to_json(action)
        return data if self._action_fields is not None else {"value": data}

    def reply(self, session: Session, timestep: Timestep, error: str | None = None) -> dict[str, Any]:
        """The reply to a reset or a step."""
        obs, reward, terminated, truncated, info = timestep
        observation = self._observation(session, obs, info)
        if self._message_names is not None and obs.reward is None:
            reward = None
        if error is not None:
            observation["error"], reward = error, 0.0
        reply = {
            "observation": observation,
            "reward": reward,
            "done": terminated or truncated,
            "terminated": terminated,
            "truncated": truncated,
            "step_count": session.step_count,
        }
        if metadata := observation["metadata"]:  # OpenEnv's clients do not accept null on a socket
            reply["metadata"] = metadata
        return reply

    def digest(self, timestep: Timestep) -> int:
        """A digest of what a replay must reproduce: observation, reward and flags, in the form the journal stores."""
        obs, reward, terminated, truncated, _ = timestep
        outcome = reward, terminated, truncated
        if isinstance(obs, np.ndarray):
            return crc32(encode(outcome), crc32(obs.tobytes()))
        if self._is_record:
            data = [getattr(obs, name) for name in self._digest_names]
        else:
            data = self.observation_space.to_json(obs)
            data = [data[name] for name in self._digest_names] if self._digest_names else data
        return crc32(encode((data, outcome)))

    def _observation(self, session: Session, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        if self._message_names is not None:
            if self._is_record:
                data = {name: getattr(obs, name) for name in self._top_names}
                if self._moved_names:
                    data["metadata"] = {name: getattr(obs, name) for name in self._moved_names} | obs.metadata
                return data
            message = self.observation_space.to_json(obs)
            return {name: message[name] for name in self._message_names}
        data = {"value": obs} if self._observation_fields is None else dict(self.observation_space.to_json(obs))
        if self._language.message is not None:
            data |= self._language.message(obs, info)
        data["text"] = session.describe()
        data["metadata"] = public_info(info, self._hidden) if self._hidden else info
        return data

    def schema(self) -> dict[str, Any]:
        """JSON Schema of actions, observations and states."""
        return {
            "action": self._action_schema(),
            "observation": self._observation_schema(),
            "state": {
                "type": "object",
                "properties": {
                    "episode_id": {"type": ["string", "null"]},
                    "step_count": {"type": "integer", "minimum": 0},
                },
                "required": ["episode_id", "step_count"],
            },
        }

    def annotated_schema(self) -> dict[str, Any]:
        """`schema` with the fields that an action needs, and for the page the action for a click on each cell."""
        schema, rows = self.schema(), self._language.clicks
        forms = schema["action"]["oneOf"]
        form = next((form for form in forms if self._message_field in form["properties"]), forms[0])
        schema["action"]["required"] = form.get("required", [])
        if not rows:
            return schema
        if len({len(row) for row in rows}) > 1:
            raise ValidationError("language.clicks", rows, "rows of equal length")
        clicks = [[None if action is None else self._click_action(action) for action in row] for row in rows]
        return schema | {"action": schema["action"] | {"x-clicks": clicks}}

    def _click_action(self, action: Any) -> dict[str, Any]:
        return self.write_action(self.action_space.coerce(action, "language.clicks"))

    def _action_schema(self) -> dict[str, Any]:
        schema = _with_titles(self.action_space.json_schema(), self._language.actions)
        if self._action_fields is not None:
            forms = [schema]
        else:
            forms = [_one_field(name, schema) for name in ("value", self._message_field) if name is not None]
        if "text" not in (self._action_fields or ()):
            forms.append(_one_field("text", {"type": "string", "description": "The action as text."}))
        properties = {name: part for form in forms for name, part in form["properties"].items()}
        message = self.action_message()
        title = f"{self._name}Action" if message is None else message.__name__
        return {"type": "object", "title": title, "properties": properties, "oneOf": forms}

    def _observation_schema(self) -> dict[str, Any]:
        schema, words = self.observation_space.json_schema(), self._language.observations
        schema = _with_titles(schema, words) if words else schema
        properties = schema["properties"] if self._observation_fields is not None else {"value": schema}
        if self._language.observation_type is not None:
            properties = properties | Record(self._language.observation_type).json_schema()["properties"]
        hidden = (*HOISTED, *self._moved_names)
        properties = {name: part for name, part in properties.items() if name not in hidden}
        properties |= {name: properties[name] | {"x-image": True} for name in image_names(self.observation_space)}
        if self._message_names is None:
            properties["text"] = TEXT_SCHEMA
        properties["metadata"] = METADATA_SCHEMA
        return {
            "type": "object",
            "title": f"{self._name}Observation",
            "properties": properties,
            "required": list(properties),
        }


def _fields(space: Space) -> tuple[str, ...] | None:
    """The field names of a space of records; None for a bare value."""
    if isinstance(space, Dict):
        return space.keys_
    schema = space.json_schema()
    return tuple(schema["properties"]) if schema.get("type") == "object" else None


def _with_titles(schema: dict[str, Any], words: tuple[str, ...]) -> dict[str, Any]:
    """The schema of an action or observation with a title for each number, or for each entry of a list."""
    if schema["type"] == "integer" and len(words) == schema["maximum"] - schema["minimum"] + 1:
        return schema | {"oneOf": [{"const": schema["minimum"] + i, "title": word} for i, word in enumerate(words)]}
    if schema["type"] != "array" or len(words) != schema.get("minItems") or not words:
        return schema
    entries = schema.get("prefixItems") or [schema["items"]] * len(words)
    titled = [entry | {"title": word} for entry, word in zip(entries, words, strict=True)]
    return schema | {"prefixItems": titled, "items": False}


def _message_names(space: Space) -> list[str] | None:
    """The fields of an observation that is a message, without the hoisted ones; None if it is not a message."""
    if not isinstance(space, Record | Model):
        return None
    names: list[str] = list(space.json_schema()["properties"])
    return [name for name in names if name not in HOISTED] if {*HOISTED, "metadata"} <= set(names) else None


def _only_field(message: type | None) -> str | None:
    return None if message is None or not is_dataclass(message) else fields(message)[0].name


def _one_field(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": False}


def public_info(info: dict[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """Info without the hidden names, also in the info of a finished episode that auto-reset adds."""
    shown = {name: value for name, value in info.items() if name not in hidden}
    if "final_info" in shown:
        shown["final_info"] = public_info(shown["final_info"], hidden)
    return shown


def public_reply(body: bytes, hidden: Collection[str]) -> bytes:
    """A reply to a step without the hidden names."""
    if not hidden:
        return body
    reply = decode(body)
    metadata = public_info(reply["observation"]["metadata"], hidden)
    reply["observation"]["metadata"] = metadata
    return encode(reply | {"metadata": metadata} if "metadata" in reply else reply)


def session_state(session: Session) -> dict[str, Any]:
    return asdict(session.state)


def image_names(space: Space) -> tuple[str, ...]:
    """The fields of an observation that are images."""
    if isinstance(space, Dict):
        return tuple(name for name, part in space.spaces.items() if _is_image(part))
    return (WHOLE,) if _is_image(space) else ()


def _is_image(space: Space) -> bool:
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 3 and space.shape[2] in CHANNELS
