"""Session: the lifecycle table, seeds, counters, snapshots and forks."""

import copy
import pickle
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.check.faulty import UnseededHost
from tests.core.lines import HostLine, Line

from tropism.core.compiled.program import program_of
from tropism.core.environment import Environment
from tropism.core.host import Host
from tropism.core.registry import make
from tropism.core.session.session import EnvironmentState, Session, Timestep
from tropism.core.session.snapshot import DIGEST
from tropism.envs.cartpole import CartPole
from tropism.errors import DivergedError, StateError, ValidationError
from tropism.wire.messages import State

CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState
both = pytest.mark.parametrize("env", [Line(), HostLine()], ids=["pure", "host"])
CALLS = {
    "step": lambda session: session.step(1),
    "render": lambda session: session.render(),
    "describe": lambda session: session.describe(),
    "snapshot": lambda session: session.snapshot(),
    "fork": lambda session: session.fork(),
    "timestep": lambda session: session.timestep,
}


def start_session(env: Environment, seed: int = 0, steps: int = 0, **params: Any) -> Session:
    session = Session(env, params)
    session.reset(seed=seed)
    for _ in range(steps):
        session.step(1)
    return session


def end_episode(env: Environment, lifecycle: EnvironmentState) -> Session:
    session = start_session(env, max_steps=2 if lifecycle is TRUNCATED else 100, noise=0.0)
    while session.lifecycle is READY:
        session.step(1 if lifecycle is TRUNCATED else 2)
    assert session.lifecycle is lifecycle
    return session


def session_in(env: Environment, lifecycle: EnvironmentState) -> Session:
    if lifecycle in (TERMINATED, TRUNCATED):
        return end_episode(env, lifecycle)
    session = Session(env) if lifecycle is CREATED else start_session(env)
    if lifecycle is CLOSED:
        session.close()
    assert session.lifecycle is lifecycle
    return session


def assert_same(actual: Any, expected: Any):
    np.testing.assert_array_equal(actual.obs, expected.obs)
    assert actual[1:] == expected[1:]


def play(session: Session, actions: list[int]) -> list[Timestep]:
    return [session.step(action) for action in actions if session.lifecycle is READY]


def assert_same_play(actual: list[Timestep], expected: list[Timestep]):
    assert len(actual) == len(expected)
    for x, y in zip(actual, expected, strict=True):
        assert_same(x, y)


@both
@pytest.mark.parametrize("lifecycle", [CREATED, READY, TERMINATED, TRUNCATED])
def test_reset_leads_to_ready_from_every_state_but_closed(env: Environment, lifecycle: EnvironmentState):
    session = session_in(env, lifecycle)
    session.reset(seed=1)
    assert session.lifecycle is READY
    assert session.state.step_count == 0


@both
@pytest.mark.parametrize("lifecycle", list(EnvironmentState))
def test_close_leads_to_closed_from_every_state_and_is_idempotent(env: Environment, lifecycle: EnvironmentState):
    session = session_in(env, lifecycle)
    session.close()
    session.close()
    assert session.lifecycle is CLOSED
    with pytest.raises(StateError, match="cannot reset: the session is CLOSED; make a new Session"):
        session.reset(seed=0)


@both
@pytest.mark.parametrize(
    ("lifecycle", "calls", "advice"),
    [
        (CREATED, list(CALLS), "call reset\\(\\) first"),
        (TERMINATED, ["step"], "call reset\\(\\) to start the next episode"),
        (TRUNCATED, ["step"], "call reset\\(\\) to start the next episode"),
        (CLOSED, list(CALLS), "make a new Session"),
    ],
)
def test_a_disallowed_call_names_the_state_and_the_remedy(
    env: Environment, lifecycle: EnvironmentState, calls: list[str], advice: str
):
    session = session_in(env, lifecycle)
    for call in calls:
        with pytest.raises(StateError, match=f"cannot {call}: the session is {lifecycle.name}; {advice}") as caught:
            CALLS[call](session)
        assert isinstance(caught.value, RuntimeError)
        assert (caught.value.name, caught.value.value) == ("lifecycle", lifecycle)
    assert session.lifecycle is lifecycle


def test_both_flags_mean_terminated():
    class Both(Line):
        def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            obs, state, reward, done, _ = super().step(key, state, action, params)
            return obs, state, reward, done | True, {"terminated": done | True, "truncated": done | True}

    session = start_session(Both())
    timestep = session.step(1)
    assert (timestep.terminated, timestep.truncated) == (True, True)
    assert session.lifecycle is TERMINATED


@both
def test_a_timestep_holds_plain_host_values(env: Environment):
    session = Session(env)
    for timestep in (session.reset(seed=0), session.step(2)):
        assert isinstance(timestep.obs, np.ndarray)
        assert timestep.obs in session.observation_space
        assert [type(value) for value in timestep[1:4]] == [float, bool, bool]
        assert "terminated" not in timestep.info
    assert_same(session.timestep, timestep)


@both
@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**64 - 1, 2**64, 10**40, np.int64(7), np.uint8(7), np.array(7)])
def test_a_seed_of_any_size_and_kind_repeats_the_episode(env: Environment, seed: Any):
    first, again = Session(env), Session(env)
    assert_same(first.reset(seed=seed), again.reset(seed=seed))
    assert_same_play(play(first, [1, 2, 0]), play(again, [1, 2, 0]))
    assert first.seed == int(seed)


@pytest.mark.parametrize("seeds", [(0, 1), (1, 2**32), (1, 2**64 + 1), (2**64, 2**65), (5, 10**40)])
def test_different_seeds_differ(seeds: tuple[int, int]):
    one, other = (Session(Line()).reset(seed=seed) for seed in seeds)
    assert one.obs != other.obs


@both
@pytest.mark.parametrize("seed", [-1, True, False, 1.0, "1", np.float32(1), [1], np.array([1]), np.bool_(True)])
def test_an_invalid_seed_is_rejected_and_changes_nothing(env: Environment, seed: Any):
    session = start_session(env, 3, steps=1)
    before = (session.seed, session.state, session.lifecycle)
    with pytest.raises(ValidationError) as caught:
        session.reset(seed=seed)
    assert caught.value.name == "seed"
    assert (session.seed, session.state, session.lifecycle) == before


@both
def test_every_unseeded_episode_can_be_replayed_by_its_seed(env: Environment):
    session = Session(env)
    seen: list[int] = []
    for _ in range(4):
        first = session.reset()
        steps = play(session, [2, 1, 0])
        assert session.seed is not None
        seen.append(session.seed)
        again = Session(env)
        assert_same(again.reset(seed=session.seed), first)
        assert_same_play(play(again, [2, 1, 0]), steps)
    assert len(set(seen)) == 4


@both
def test_a_stream_of_episodes_follows_from_its_first_seed(env: Environment):
    seeds: list[list[int | None]] = []
    for _ in range(2):
        session = start_session(env, 5)
        session.reset()
        session.step(1)
        seeds.append([session.seed])
        session.reset()
        seeds[-1].append(session.seed)
    assert seeds[0] == seeds[1]
    assert Session(env).reset().obs is not None


@both
def test_counters_and_episode_ids(env: Environment):
    session = Session(env)
    assert (session.state.episode_id, session.state.step_count, session.episode_count) == (None, 0, 0)
    session.reset(seed=0)
    first = session.state.episode_id
    rewards = [session.step(2).reward, session.step(1).reward]
    assert (session.step_count, session.episode_count) == (2, 1)
    assert session.total_reward == sum(rewards) < 0
    session.reset()
    assert (session.step_count, session.total_reward, session.episode_count) == (0, 0.0, 2)
    session.reset(seed=0)
    assert session.episode_count == 1
    assert session.episode_id != first
    assert uuid.UUID(str(session.episode_id)).version == 4


@both
def test_options_change_one_episode_only(env: Environment):
    session = Session(env)
    session.reset(seed=0, options={"params": {"max_steps": 1}})
    assert session.step(1).truncated
    session.reset(seed=0)
    assert not session.step(1).truncated
    session.reset(seed=0, options={})
    assert not session.step(1).truncated


@both
@pytest.mark.parametrize(
    "options", [{"speed": 1}, {"params": {"mass": 1}}, {"params": 3}, 3, "params", [("params", {})]]
)
def test_invalid_options_are_rejected_and_change_nothing(env: Environment, options: Any):
    session = start_session(env, 3, steps=1)
    before = (session.seed, session.state)
    with pytest.raises(ValidationError):
        session.reset(seed=0, options=options)
    assert (session.seed, session.state) == before


@both
@pytest.mark.parametrize("action", [7, -1, True, 1.0, "1", None, [1], np.array([1])])
def test_an_invalid_action_changes_nothing(env: Environment, action: Any):
    session, other = start_session(env, 3, steps=1), start_session(env, 3, steps=1)
    with pytest.raises(ValidationError, match=r"action is .*Discrete\(3\): 0 to 2"):
        session.step(action)
    assert session.step_count == 1
    assert_same_play(play(session, [1, 2]), play(other, [1, 2]))


@both
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 2**70))
@settings(max_examples=15)
def test_a_snapshot_and_a_fork_continue_identically(env: Environment, actions: list[int], cut: int, seed: int):
    session = start_session(env, seed)
    play(session, actions[:cut])
    restored = Session.restore(session.snapshot(), env)
    fork = session.fork()
    assert (restored.state, restored.total_reward) == (session.state, session.total_reward)
    assert (restored.lifecycle, restored.seed) == (session.lifecycle, session.seed)
    assert fork.episode_id != session.episode_id
    rest = play(session, actions[cut:])
    assert_same_play(play(restored, actions[cut:]), rest)
    assert_same_play(play(fork, actions[cut:]), rest)


@both
def test_pickle_and_deepcopy_continue_mid_episode(env: Environment):
    session = start_session(env, 1, steps=2)
    twins = [pickle.loads(pickle.dumps(session)), copy.deepcopy(session)]
    rest = play(session, [2, 1])
    for twin in twins:
        assert twin.episode_id == session.episode_id
        assert_same_play(play(twin, [2, 1]), rest)
    assert pickle.loads(pickle.dumps(Session(env))).lifecycle is CREATED


@both
def test_a_fork_with_a_seed_draws_other_randomness_and_repeats(env: Environment):
    session = start_session(env, 1, steps=1)
    twins = [session.fork(seed=9), session.fork(seed=9), *(session.fork(seed=seed) for seed in range(10, 16))]
    assert twins[0].seed == 9
    outcomes = [[float(t.obs[0]) for t in play(twin, [1] * 8)] for twin in twins]
    assert outcomes[0] == outcomes[1]
    assert any(outcome != outcomes[0] for outcome in outcomes[2:])
    with pytest.raises(ValidationError):
        session.fork(seed=-1)


def test_a_fork_with_a_seed_survives_a_snapshot():
    fork = start_session(HostLine(), 1, steps=2).fork(seed=9)
    play(fork, [1, 1])
    assert_same_play(play(Session.restore(fork.snapshot(), HostLine()), [1, 1]), play(fork, [1, 1]))


def test_a_snapshot_has_the_params_of_its_session():
    session = start_session(Line(), stride=0.25)
    twin = Session.restore(session.snapshot(), Line())
    assert_same(twin.step(2), session.step(2))


def test_a_registered_environment_is_restored_by_its_id():
    env, params = make("GridWorld-v0", size=9)
    session = Session(env, params)
    session.reset(seed=0)
    session.step(2)
    twin = Session.restore(session.snapshot())
    assert twin.env == env
    assert_same(twin.step(2), session.step(2))


def test_restore_needs_the_environment_if_it_has_no_id():
    with pytest.raises(ValidationError, match="no registered id"):
        Session.restore(start_session(Line()).snapshot())


@both
def test_a_damaged_snapshot_is_rejected(env: Environment):
    data = start_session(env, steps=1).snapshot()
    damaged = [b"", b"tropism2", data[:-1], data + b"x", b"x" + data[1:], data[:40] + bytes([data[40] ^ 1]) + data[41:]]
    damaged.append(data[: -DIGEST - 1] + bytes([data[-DIGEST - 1] ^ 1]) + data[-DIGEST:])
    for bad in damaged:
        with pytest.raises(ValidationError, match="snapshot"):
            Session.restore(bad, env)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("data", [None, "text", 3, [1]])
def test_only_bytes_are_a_snapshot(data: Any):
    with pytest.raises(ValidationError, match="bytes made by"):
        Session.restore(data, Line())


def test_a_snapshot_of_another_environment_is_rejected():
    with pytest.raises(ValidationError, match="of this environment"):
        Session.restore(start_session(Line()).snapshot(), CartPole())


def test_a_host_episode_that_diverges_raises():
    session = start_session(UnseededHost())
    attempts = [DivergedError if _diverges(session) else None for _ in range(8)]
    assert DivergedError in attempts


def _diverges(session: Session) -> bool:
    try:
        session.fork()
    except DivergedError as error:
        return "replayed steps the observation differs" in str(error)
    return False


def test_an_environment_that_is_not_replayable_or_reseedable_raises():
    class Once(HostLine):
        host = Host(replayable=False)

    class Fixed(HostLine):
        host = Host(reseedable=False)

    with pytest.raises(StateError, match="Once declares that it cannot be replayed"):
        start_session(Once()).snapshot()
    with pytest.raises(StateError, match="cannot be replayed"):
        start_session(Once()).fork()
    with pytest.raises(ValidationError, match="Fixed draws its randomness when it is reset"):
        start_session(Fixed()).fork(seed=3)
    assert start_session(Fixed()).fork().lifecycle is READY


@pytest.mark.parametrize("uses_keys", [True, False])
def test_steps_that_use_no_key_get_0(uses_keys: bool):
    keys: list[int] = []

    class Keyed(HostLine):
        host = Host(reseedable=False, uses_keys=uses_keys)

        def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            keys.append(key)
            return super().step(key, state, action, params)

    session = start_session(Keyed())
    session.step(1)
    session.step(1)
    assert (keys == [0, 0]) == (not uses_keys)
    assert len(set(keys)) == 1 + uses_keys


def test_close_releases_the_host_state_once():
    closed: list[Any] = []

    class Held(HostLine):
        def close(self, state: Any) -> None:
            closed.append(state)

    session = start_session(Held())
    session.reset(seed=1)
    assert len(closed) == 1
    with session:
        pass
    session.close()
    assert len(closed) == 2


def test_close_never_raises_and_logs_the_error(caplog: pytest.LogCaptureFixture):
    class Stuck(HostLine):
        def close(self, state: Any) -> None:
            raise OSError("the door is stuck")

    session = start_session(Stuck())
    assert session.reset(seed=1).reward == 0
    session.close()
    session.close()
    assert session.lifecycle is CLOSED
    assert [record.getMessage() for record in caplog.records] == ["Stuck raised when it was closed"] * 2
    assert "the door is stuck" in caplog.text


def test_render_changes_nothing_and_may_return_none():
    class Dark(Line):
        def render(self, state: Any, params: Any) -> Any:
            return None

    session, other = start_session(Line(), 2), start_session(Line(), 2)
    frame = session.render()
    assert (frame.shape, frame.dtype) == ((4, 6, 3), np.uint8)
    assert_same(session.step(1), other.step(1))
    assert start_session(Dark()).render() is None


def test_step_and_render_compile_once_if_reset_ignores_its_params():
    class Drawn(Line):
        """Its program is not shared with other tests."""

    session = Session(Drawn(), engine="xla")
    for seed in (0, 1):
        session.reset(seed=seed)
        session.step(1)
        session.render()
    program = program_of(Drawn(), session.params)
    assert (program.step._cache_size(), program.render._cache_size()) == (1, 1)


def test_describe_and_parse():
    session = start_session(CartPole())
    assert session.describe().startswith("Keep the pole")
    assert session.parse("right") == 1
    with pytest.raises(ValidationError):
        session.parse("jump")


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("env", [None, Line, "CartPole-v1", (Line(), None)])
def test_a_session_needs_an_environment(env: Any):
    with pytest.raises(ValidationError, match="an Environment"):
        Session(env)


def test_returned_observations_are_new_writable_arrays():
    session, other = start_session(Line(), 4), start_session(Line(), 4)
    first = session.step(1).obs
    kept = first.copy()
    first[:] = 99
    other.step(1)
    assert_same(session.step(2), other.step(2))
    assert not np.array_equal(first, kept)


@pytest.mark.parametrize("params", [{"gravity": 3.7}, {"max_steps": 3}])
def test_a_restored_session_keeps_its_params_in_later_episodes(params: dict[str, Any]) -> None:
    session = Session(CartPole(), params)
    session.reset(seed=0)
    twin = Session.restore(session.snapshot())
    for one in (session, twin):
        one.reset(seed=1)
    for action in (1, 1, 1):
        assert_same(session.step(action), twin.step(action))


def test_the_caller_may_choose_the_episode_id():
    session = Session(Line())
    session.reset(seed=0, episode_id="ep-1")
    session.step(1)
    assert session.state == State(episode_id="ep-1", step_count=1)
    assert Session.restore(session.snapshot(), Line()).episode_id == "ep-1"
    session.reset(seed=0)
    assert uuid.UUID(str(session.episode_id)).version == 4


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("id", ["", "x" * 256, 3, b"ep"])
def test_an_invalid_episode_id_is_rejected_and_changes_nothing(id: Any):
    session = Session(Line())
    session.reset(seed=0, episode_id="x" * 255)
    with pytest.raises(ValidationError, match="episode_id"):
        session.reset(seed=1, episode_id=id)
    assert (session.seed, session.episode_id) == (0, "x" * 255)
