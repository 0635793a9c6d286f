"""Class-based environments are accepted wherever an Environment is."""

import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from tests.core.agents import Counting, Guess, Guessing, Hint, Move, Stranger, Undecided, View

from tropism import Environment, Observation, Session, State, StateError, ValidationError, adapt, make, register
from tropism.check import check_environment
from tropism.core import registry
from tropism.gym import to_gymnasium

every = pytest.mark.parametrize("kind", [Guessing, Counting, Undecided, Stranger])


@pytest.fixture
def ids() -> Iterator[None]:
    before = dict(registry._specs)  # pyright: ignore[reportPrivateUsage]
    yield
    registry._specs.clear()  # pyright: ignore[reportPrivateUsage]
    registry._specs.update(before)  # pyright: ignore[reportPrivateUsage]


def play(session: Session, numbers: range = range(4)) -> list[Any]:
    space = session.action_space
    key = "number" if "number" in space.json_schema()["properties"] else "to"
    return [session.step({key: number}) for number in numbers]


@every
def test_check_environment_accepts_the_class(kind: type):
    report = check_environment(kind)
    assert report.ok, str(report)
    assert str(report).startswith(kind.__name__)
    skipped = {result.message for result in report.results if result.status == "skipped"}
    assert ("its resets take no seed" in skipped) == (kind is Undecided)


@every
def test_it_passes_the_gymnasium_checker(kind: type):
    if kind is Undecided:
        return  # the checker needs seeds
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        check_env(to_gymnasium(adapt(kind)), skip_render_check=True)


@pytest.mark.usefixtures("ids")
def test_a_registered_class_is_built_by_its_id_with_its_arguments():
    register("Guessing-v0", Guessing)
    env, params = make("Guessing-v0", highest=0)
    assert isinstance(env, Environment)
    assert env == make("Guessing-v0", highest=0)[0] != make("Guessing-v0")[0]
    session = Session(env, params)
    session.reset(seed=3)
    assert session.step({"number": 0}).terminated
    restored = Session.restore(session.snapshot())
    assert restored.timestep.obs == Hint(text="yes", reward=1.0, done=True, metadata={"step": 1})
    (spec,) = [spec for spec in registry.registered() if spec.id == "Guessing-v0"]
    assert (spec.traced, spec.summary) == (False, "Guess a number from 0 to 9 that depends on the seed.")
    with pytest.raises(ValidationError, match="lowest"):
        make("Guessing-v0", lowest=3)
    gym = gymnasium.make("tropism.gym:tropism/Guessing-v0")
    assert gym.reset(seed=0)[0]["text"] == "guess"


@pytest.mark.usefixtures("ids")
@pytest.mark.parametrize("target", [Guessing(), Guessing, lambda: Guessing(), adapt(Guessing)])
def test_a_class_an_instance_or_a_function_can_be_registered(target: Any):
    register("Guessing-v0", target)
    session = Session(*make("Guessing-v0"))
    assert session.reset(seed=0).obs.text == "guess"


def test_a_session_accepts_an_unregistered_class_or_an_instance():
    for source in (Guessing, Guessing()):
        session = Session(source)
        first = session.reset(seed=1)
        assert first.obs == Hint(text="guess", metadata={"episode": True})
        assert [ts.obs.text for ts in play(session, range(2))] == [
            ts.obs.text for ts in play(_seed_session(1), range(2))
        ]
    with pytest.raises(ValidationError, match="no registered id"):
        Session.restore(session.snapshot())


def _seed_session(seed: int) -> Session:
    session = Session(Guessing)
    session.reset(seed=seed)
    return session


def test_an_instance_is_never_stepped_itself():
    mine = Counting()
    session = Session(mine)
    session.reset(seed=0)
    play(session)
    assert mine.count == 0


def test_state_before_and_after_a_reset():
    session = Session(Guessing)
    assert session.state == State(episode_id=None, step_count=0)
    session.reset(seed=0, episode_id="ep-1")
    agent: Any = session._engine.state()  # pyright: ignore[reportPrivateUsage]
    assert agent.state == session.state == State(episode_id="ep-1", step_count=0)
    session.reset(seed=0)
    agent = session._engine.state()  # pyright: ignore[reportPrivateUsage]
    assert agent.state == session.state
    assert session.episode_id


def test_options_are_arguments_of_the_reset():
    session = Session(Guessing)
    session.reset(seed=0, options={"lowest": 9})
    assert session.fork().step({"number": 9}).terminated
    with pytest.raises(ValidationError, match="highest"):
        session.reset(options={"highest": 3})
    with pytest.raises(ValidationError, match="options"):
        session.reset(options=["lowest"])
    stranger = Session(Stranger)
    assert stranger.reset(seed=1, options={"task": 3}).obs.metadata == {"task": 3}


def test_a_seed_is_rejected_if_reset_takes_none_unless_it_is_deterministic():
    session = Session(Undecided)
    with pytest.raises(ValidationError, match="takes no seed, and it is not declared deterministic"):
        session.reset(seed=0)
    session.reset()
    assert play(session)[-1].obs.metadata == {"seen": True}
    with pytest.raises(StateError, match="Undecided declares that it cannot be replayed"):
        session.snapshot()
    assert Session(Counting).reset(seed=0).obs == Observation(metadata={"seen": True})


def test_the_transform_runs_last_and_may_change_the_reward():
    session = Session(Counting)
    session.reset(seed=0)
    ts = session.step(Guess(number=1))
    assert (ts.reward, ts.obs.metadata) == (2.0, {"seen": True})


def test_exceptions_of_the_class_propagate_and_an_invalid_action_changes_nothing():
    session = _seed_session(0)
    before = session.snapshot()
    with pytest.raises(ValidationError):
        session.step({"number": "seven"})
    with pytest.raises(LookupError, match="thirteen"):
        session.step({"number": -13})
    assert session.step_count == 0
    assert session.snapshot() == before


@pytest.mark.parametrize("kind", [Guessing, Counting, Stranger])
def test_snapshots_forks_and_pickles_continue(kind: type):
    session = Session(kind)
    session.reset(seed=5)
    play(session, range(2))
    expected = play(session.fork(), range(2, 4))
    for twin in (pickle.loads(pickle.dumps(session)), Session.restore(session.snapshot(), adapt(kind))):
        assert play(twin, range(2, 4)) == expected
    assert play(session, range(2, 4)) == expected


def test_every_episode_has_its_own_object_which_is_closed():
    session = Session(Counting)
    session.reset(seed=0)
    first: Any = session._engine.state()  # pyright: ignore[reportPrivateUsage]
    session.reset()
    second: Any = session._engine.state()  # pyright: ignore[reportPrivateUsage]
    assert (first.closed, second.closed) == (True, False)
    session.close()
    assert second.closed


def test_blocking_is_that_of_the_class():
    assert [adapt(kind).host.blocking for kind in (Guessing, Counting, Stranger)] == [True, False, True]


def test_self_validating_messages_are_used():
    session = Session(Stranger)
    assert session.reset(seed=4).obs == View(at=1)
    assert session.step(Move(to=1)).obs.at == 3
    with pytest.raises(ValidationError, match="to: not a integer"):
        session.step({"to": "x"})
    assert session.action_space.json_schema()["required"] == ["to"]
    assert session.parse('{"to": 2}') == Move(to=2)


def test_types_may_be_given_instead_of_annotations():
    class Bare:
        state = State()

        def reset(self):
            return Observation()

        def step(self, action):  # pyright: ignore
            return Observation(done=True)

    with pytest.raises(ValidationError, match=r"observation is None.*annotate Bare.step, or use adapt"):
        adapt(Bare)
    with pytest.raises(ValidationError, match="action is None"):
        adapt(Bare, observation=Observation)
    session = Session(adapt(Bare, action=Guess, observation=Observation))
    session.reset()
    assert session.step({"number": 1}).terminated
    assert not check_environment(Bare).ok


def test_an_observation_of_another_type_is_rejected():
    class Misdeclared(Counting):
        def reset(self) -> Any:
            return "hello"

        def transform(self, observation: Any) -> Any:
            return observation

    with pytest.raises(ValidationError, match="a Observation, as Misdeclared declares"):
        Session(Misdeclared).reset()


@dataclass(frozen=True)
class NoReward:
    text: str


def test_an_observation_without_reward_and_done_is_rejected():
    with pytest.raises(ValidationError, match="done and reward"):
        adapt(Counting, observation=NoReward)


@pytest.mark.parametrize("thing", [3, "Guessing", object(), int, lambda: 3])
def test_other_objects_are_rejected(thing: Any):
    with pytest.raises(ValidationError):
        adapt(thing)
