"""OpenEnv's conventions: metadata, typed messages, states, schemas, and classes written after its guide."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from tests.serve.guide import Guessing
from tests.serve.replies import assert_refused
from tests.serve.running import Running, labs, running, talk

from tropism import AgentEnvironment, check_environment, make
from tropism.client import Client
from tropism.core.adapters.class_based import adapt
from tropism.envs.chat import Chat
from tropism.serve.session.environment import ServedEnvironment
from tropism.wire.messages import Action, Observation


class TypedObservation(BaseModel):
    """The base class of observations in the openenv package: unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")
    done: bool = False
    reward: bool | int | float | None = None
    metadata: dict[str, Any] = {}


class TypedChatObservation(TypedObservation):
    messages: list[dict[str, str]]
    tokens: list[int]


class Letters:
    """A tokenizer: one token per character."""

    def __call__(self, conversation: list[dict[str, str]]) -> Sequence[int]:
        return [ord(letter) for message in conversation for letter in message["content"]]

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


def served(id: str, env: Any) -> ServedEnvironment:
    return ServedEnvironment(id, env, env.default_params(), "A test's own.")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    own = {"Guess-v0": served("Guess-v0", adapt(Guessing)), "Tokens-v0": served("Tokens-v0", Chat(tokenizer=Letters()))}
    with running("Echo-v0", "GridWorld-v0", "ConnectFour-v0", "Chat-v0", own=own | labs()) as started:
        yield started


def test_empty_metadata_is_absent_on_a_socket_and_null_over_http(server: Running):
    with server.http("Echo-v0") as caller, server.ws("Echo-v0") as socket:
        assert caller.post("/reset", json={}).json()["metadata"] is None
        assert "metadata" not in talk(socket, "reset")["data"]
        assert caller.post("/step", json={"action": {"message": "x"}}).json()["metadata"] == {"step": 1}
        assert talk(socket, "step", {"message": "x"})["data"]["metadata"] == {"step": 1}


def test_a_typed_chat_client_sends_and_receives_tokens(server: Running):
    with server.ws("Tokens-v0") as socket:
        talk(socket, "reset", {"seed": 1})
        reply = talk(socket, "step", {"tokens": [ord("5"), ord("0")], "metadata": {}})["data"]
        observation = TypedChatObservation(**reply["observation"])
        assert observation.messages[1] == {"role": "user", "content": "50"}
        assert observation.tokens == Letters()([dict(message) for message in observation.messages])
        assert talk(socket, "step", {"tokens": [[52, 50]]})["data"]["observation"]["messages"][3]["content"] == "42"
    with server.http("Tokens-v0") as caller, server.http("Chat-v0") as plain:
        caller.post("/reset", json={})
        plain.post("/reset", json={})
        for tokens in ("50", [], ["a"], [1.5]):
            refused = caller.post("/step", json={"action": {"tokens": tokens}})
            assert "tokens" in assert_refused(refused, "VALIDATION_ERROR")["message"]
        assert_refused(plain.post("/step", json={"action": {"tokens": [53]}}), "VALIDATION_ERROR")


def test_a_class_of_the_guide_runs_unchanged(server: Running):
    """Its transform is applied once, a reward of None is null, and its state has its own fields."""
    check_environment(adapt(Guessing), laws=["interface", "spaces", "flags", "snapshot", "words"]).raise_if_failed()
    with server.http("Guess-v0") as caller:
        begun = caller.post("/reset", json={"episode_id": "ep-1"}).json()
        assert (begun["observation"]["hint"], begun["reward"]) == ("five letters (1)", None)
        missed = caller.post("/step", json={"action": {"word": "smoke"}}).json()
        assert (missed["observation"]["hint"], missed["reward"], missed["done"]) == ("False (2)", None, False)
        state = caller.get("/state").json()
        assert state == {"episode_id": "ep-1", "step_count": 1, "guesses": ["smoke"], "secret_length": 5}
        found = caller.post("/step", json={"action": {"text": "plume"}}).json()
        assert (found["reward"], found["done"]) == (1.0, True)


def test_the_state_of_an_isolated_class_has_its_own_fields():
    own = {"Guess-v0": served("Guess-v0", adapt(Guessing))}
    with running(own=own, processes=True) as server, server.http() as caller:
        caller.post("/reset", json={})
        caller.post("/step", json={"action": {"word": "smoke"}})
        assert caller.get("/state").json()["guesses"] == ["smoke"]


@pytest.mark.parametrize(
    ("id", "title", "required"),
    [
        ("Echo-v0", "EchoAction", ["message"]),
        ("ConnectFour-v0", "ConnectFourAction", ["column"]),
        ("Chat-v0", "ChatAction", ["content"]),
        ("GridWorld-v0", "GridWorldAction", ["value"]),
        ("Guess-v0", "GuessAction", ["word"]),
    ],
)
def test_schemas_have_a_title_and_required_fields(server: Running, id: str, title: str, required: list[str]):
    with server.http(id) as caller:
        action = caller.get("/schema").json()["action"]
        assert (action["title"], action["required"]) == (title, required)


def test_a_field_takes_plain_words(server: Running):
    with server.http("GridWorld-v0") as grid, server.http("ConnectFour-v0") as game:
        grid.post("/reset", json={})
        game.post("/reset", json={})
        by_number = grid.post("/step", json={"action": {"value": 1}}).json()
        grid.post("/reset", json={})
        assert grid.post("/step", json={"action": {"value": "right"}}).json() == by_number
        assert_refused(grid.post("/step", json={"action": {"value": "sideways"}}), "VALIDATION_ERROR")
        assert game.post("/step", json={"action": {"column": "3"}}).status_code == 200
        assert game.get("/state").json()["step_count"] == 1


def test_our_client_lifts_fields_out_of_the_metadata(server: Running):
    assert make("Echo-v0")[0].language.metadata_fields == ()
    with Client(f"{server.url}/envs/Echo-v0") as client:
        client.reset()
        assert client.step({"message": "x"}).observation.metadata == {"step": 1}


@dataclass(frozen=True, kw_only=True)
class Appointment(Action):
    """Has a field of a type that JSON does not have."""

    when: datetime


class Calendar(AgentEnvironment):
    deterministic = True

    def reset(self) -> Observation:
        return Observation()

    def step(self, action: Appointment) -> Observation:
        return Observation(done=True)


def test_a_check_names_the_field_that_it_rejects():
    report = check_environment(adapt(Calendar), laws=["spaces"])
    assert "Appointment.when is None; expected datetime" in str(report)
