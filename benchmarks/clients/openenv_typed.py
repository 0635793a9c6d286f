"""Typed clients with the field lists that OpenEnv publishes for its environments; runs with OpenEnv installed.

Each client is written after the description of the environment: its messages forbid fields that are not listed.
"""

import json
import sys
from typing import Any

import websockets
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.types import Action, Observation, State
from openenv_client import expect, verdict


class EchoAction(Action):
    message: str


class EchoObservation(Observation):
    echoed_message: str
    message_length: int


class Connect4Action(Action):
    column: int


class Connect4Observation(Observation):
    board: list[list[int]]
    legal_actions: list[int]


class ChatAction(Action):
    tokens: list[int]


class ChatObservation(Observation):
    messages: list[dict[str, str]]
    tokens: list[int]


class CodeAction(Action):
    code: str


class CodeObservation(Observation):
    stdout: str
    stderr: str
    exit_code: int


class TypedClient(EnvClient):
    """`fields` are the fields of the observation that the client reads; without them it passes on all."""

    observation_type: Any
    fields: tuple[str, ...] | None = None

    def _step_payload(self, action):
        return action.model_dump(exclude={"metadata"})

    def _parse_result(self, payload):
        data = payload["observation"]
        known = data if self.fields is None else {name: data[name] for name in (*self.fields, "metadata")}
        observation = self.observation_type(**known, reward=payload.get("reward"), done=payload["done"])
        return StepResult(observation=observation, reward=payload.get("reward"), done=payload["done"])

    def _parse_state(self, payload):
        return State(**payload)


class EchoClient(TypedClient):
    observation_type = EchoObservation


class Connect4Client(TypedClient):
    observation_type, fields = Connect4Observation, ("board", "legal_actions")


class ChatClient(TypedClient):
    observation_type = ChatObservation


class CodeClient(TypedClient):
    observation_type = CodeObservation


async def echo(url):
    expect(EchoObservation.model_config["extra"], "forbid")
    async with EchoClient(base_url=f"{url}/envs/Echo-v0") as client:
        await client.reset(seed=1)
        result = await client.step(EchoAction(message="hello"))
        expect((result.observation.echoed_message, result.observation.message_length), ("hello", 5))
        expect((result.reward, (await client.state()).step_count), (0.5, 1))


async def connect4(url):
    async with Connect4Client(base_url=f"{url}/envs/ConnectFour-v0") as client:
        result = await client.reset(seed=1)
        while not result.done:
            result = await client.step(Connect4Action(column=result.observation.legal_actions[0]))
        expect(len(result.observation.board), 6)
        expect((await client.state()).step_count > 3, True)


async def chat(url):
    """The server's Chat has a tokenizer with one token per byte."""
    async with ChatClient(base_url=f"{url}/envs/BytesChat") as client:
        await client.reset(seed=1)
        result = await client.step(ChatAction(tokens=list(b"50")))
        expect(result.observation.messages[1], {"role": "user", "content": "50"})
        expect(bytes(result.observation.tokens)[:10], b"I am think")


async def coding(url):
    async with CodeClient(base_url=f"{url}/envs/Coding-v0") as client:
        await client.reset(seed=1)
        result = await client.step(CodeAction(code="print(6 * 7)"))
        expect((result.observation.stdout, result.observation.exit_code), ("42\n", 0))


async def frames(url):
    """JSON-RPC in frames of type mcp, and on a socket at /mcp."""
    address = url.replace("http", "ws") + "/envs/Echo-v0"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call["params"] = {"name": "echo_message", "arguments": {"message": "hello"}}
    async with websockets.connect(f"{address}/ws") as socket:
        await socket.send(json.dumps({"type": "mcp", "data": call}))
        reply = json.loads(await socket.recv())
        expect(reply["data"]["result"]["data"]["observation"]["echoed_message"], "hello")
    async with websockets.connect(f"{address}/mcp") as socket:
        await socket.send(json.dumps(call))
        expect(json.loads(await socket.recv())["result"]["data"]["reward"], 0.5)


CHECKS = {
    "typed client, Echo": echo,
    "typed client, Connect4": connect4,
    "typed client, Chat": chat,
    "typed client, Coding": coding,
    "MCP frames and sockets": frames,
}

if __name__ == "__main__":
    skipped = sys.argv[2:]
    print(json.dumps({name: verdict(check, sys.argv[1]) for name, check in CHECKS.items() if name not in skipped}))
