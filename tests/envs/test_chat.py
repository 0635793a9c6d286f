"""Chat: the conversation grows, the partner replies, and its goal can be reached."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tropism import EnvironmentState, Session, ValidationError, make
from tropism.envs.chat import Chat, Reply, SecretNumber
from tropism.wire.messages.chat import ChatAction, ChatMessage


def polite(seed: int, messages: Any) -> Reply:
    if not messages:
        return Reply("Say please.")
    return Reply(f"{seed}: {len(messages)}", float("please" in messages[-1].content))


def search(session: Session, seed: int) -> int:
    """Find the number by bisection; returns the number of guesses."""
    session.reset(seed=seed)
    low, high = 1, 100
    while session.lifecycle is EnvironmentState.READY:
        guess = (low + high) // 2
        answer = session.step(ChatAction(content=f"Is it {guess}?")).obs.messages[-1].content
        low, high = (guess + 1, high) if "low" in answer else (low, guess - 1)
    return session.step_count


@given(st.integers(0, 2**70))
def test_the_secret_number_is_found_by_bisection(seed: int):
    session = Session(*make("Chat-v0"))
    assert search(session, seed) <= 7
    assert session.lifecycle is EnvironmentState.TERMINATED
    assert session.total_reward == 1.0
    assert session.timestep.obs.done


def test_secrets_differ_from_seed_to_seed():
    session = Session(Chat())
    openings = set[str]()
    for seed in range(20):
        search(session, seed)
        openings.add(session.timestep.obs.messages[-1].content)
    assert len(openings) > 10


def test_the_whole_conversation_is_in_the_observation():
    session = Session(Chat(polite, max_turns=2))
    assert session.reset(seed=5).obs.messages == (ChatMessage(role="assistant", content="Say please."),)
    ts = session.step({"role": "user", "content": "please"})
    assert [(m.role, m.content) for m in ts.obs.messages] == [
        ("assistant", "Say please."),
        ("user", "please"),
        ("assistant", "5: 2"),
    ]
    assert (ts.reward, ts.obs.reward, ts.obs.metadata) == (1.0, 1.0, {"step": 1})
    ts = session.step({"role": "assistant", "content": "hm"})
    assert ts.obs.messages[-1].role == "user"
    assert (ts.terminated, ts.truncated, ts.obs.done) == (False, True, True)


@pytest.mark.parametrize(
    "action", [{"role": "robot", "content": "hi"}, {"role": "user"}, {"content": 3}, {"role": None, "content": "hi"}]
)
def test_a_wrong_role_or_content_is_rejected_and_changes_nothing(action: Any):
    session = Session(Chat())
    session.reset(seed=0)
    with pytest.raises(ValidationError):
        session.step(action)
    assert (session.step_count, len(session.timestep.obs.messages)) == (0, 1)


def test_a_tokenizer_is_given_the_conversation():
    def lengths(messages: list[dict[str, str]]) -> list[int]:
        return [len(message["content"]) for message in messages]

    session = Session(Chat(polite, tokenizer=lengths))
    assert session.reset(seed=0).obs.tokens == (11,)
    assert session.step({"content": "please"}).obs.tokens == (11, 6, 4)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("arguments", [{"partner": 3}, {"max_turns": 0}, {"max_turns": 1.5}, {"tokenizer": "gpt"}])
def test_wrong_arguments_are_rejected(arguments: dict[str, Any]):
    with pytest.raises(ValidationError):
        make("Chat-v0", **arguments)


@pytest.mark.parametrize("words", ["no number", "9" * 5000, "٣", "-5", "0"])
def test_the_partner_replies_to_any_text(words: str):
    reply = SecretNumber()(0, (ChatMessage(role="user", content=words),))
    assert reply.reward == 0.0
    assert not reply.done


def test_pickles_and_forks_continue():
    session = Session(*make("Chat-v0", max_turns=5))
    session.reset(seed=0)
    session.step({"content": "50"})
    expected = session.fork().step({"content": "25"})
    for twin in (pickle.loads(pickle.dumps(session)), session.fork(), Session.restore(session.snapshot())):
        assert twin.step({"content": "25"}) == expected
    with pytest.raises(ValidationError, match="draws its randomness when it is reset"):
        session.fork(seed=3)


def test_text_is_parsed_as_a_message():
    session = Session(Chat())
    session.reset(seed=0)
    assert session.parse("Is it 50?") == ChatAction(role="user", content="Is it 50?")
    assert session.parse('{"role": "assistant", "content": "5"}') == ChatAction(role="assistant", content="5")
    session.step(session.parse("50"))
    assert "user: 50" in session.describe()
    assert "Messages left: 19." in session.describe()
