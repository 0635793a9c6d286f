"""rollout: all options give the same transitions, and sums that agree with them."""

from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.core.lines import HostLine, Line
from tests.ids import PURE, mark_slow

from tropism import make
from tropism.core.rollout.api import rollout
from tropism.core.rollout.policy import random_policy
from tropism.core.rollout.scan import Rollout
from tropism.core.session.session import EnvironmentState, Session
from tropism.errors import ValidationError

ENVS, STEPS = 6, 25
POLICY = random_policy(Line())


def run(key: Any = 0, **options: Any) -> Rollout:
    return rollout(Line(), options.pop("policy", POLICY), key, ENVS, STEPS, **options)


BASE = run()


def assert_same(actual: Any, expected: Any):
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_transitions_are_stacked_time_by_environment():
    assert BASE.transitions is not None
    assert BASE.transitions.obs.shape == BASE.transitions.next_obs.shape == (STEPS, ENVS, 1)
    assert BASE.transitions.reward.shape == BASE.transitions.action.shape == (STEPS, ENVS)
    assert BASE.transitions.reward.dtype == jnp.float32


def test_next_obs_is_the_following_obs_except_at_an_end():
    t = BASE.transitions
    assert t is not None
    done = np.asarray(t.terminated | t.truncated)
    assert 0 < done.sum() < done.size
    follows = np.asarray(t.obs)[1:, :, 0] == np.asarray(t.next_obs)[:-1, :, 0]
    assert np.array_equal(follows, ~done[:-1])
    np.testing.assert_array_equal(np.asarray(t.reward), -np.abs(np.asarray(t.next_obs)[..., 0]))
    assert (np.abs(np.asarray(t.obs)[1:][done[:-1]]) <= 1).all()  # where episodes start


def test_episode_sums_agree_with_the_transitions():
    t = BASE.transitions
    assert t is not None
    assert BASE.episodes is not None
    done = np.asarray(t.terminated | t.truncated)
    returns, lengths = 0.0, 0
    for env in range(ENVS):
        ends = np.flatnonzero(done[:, env])
        lengths += ends[-1] + 1
        returns += np.asarray(t.reward)[: ends[-1] + 1, env].sum()
    assert int(BASE.episodes.episodes) == done.sum()
    assert int(BASE.episodes.total_length) == lengths
    np.testing.assert_allclose(BASE.episodes.total_return, returns, 1e-5)
    np.testing.assert_allclose(BASE.episodes.mean_return, returns / done.sum(), 1e-5)
    np.testing.assert_allclose(BASE.episodes.mean_length, lengths / done.sum(), 1e-6)


def test_without_finished_episodes_the_means_are_zero():
    episodes = rollout(Line(), POLICY, 0, 2, 1, params={"noise": 0.0}).episodes
    assert episodes is not None
    assert (int(episodes.episodes), float(episodes.mean_return), float(episodes.mean_length)) == (0, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", ["finished", "select"])
@pytest.mark.parametrize("reproducible", [False, True])
def test_the_restart_mode_changes_nothing(restarts: Any, reproducible: bool):
    base = run(reproducible=True) if reproducible else BASE
    assert_same(run(restarts=restarts, reproducible=reproducible), base)


def assert_same_to_rounding(actual: Rollout, expected: Rollout):
    """Another compilation may sum over environments in another order."""
    assert_same(actual.transitions, expected.transitions)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), actual, expected)


def test_a_progress_report_changes_nothing_and_counts_to_the_end(capsys: pytest.CaptureFixture[str]):
    seen: list[tuple[int, int]] = []
    assert_same_to_rounding(run(progress=lambda *news: seen.append(news)), BASE)
    assert seen[-1] == (STEPS, STEPS)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert_same_to_rounding(run(progress=True), BASE)
    assert capsys.readouterr().err.endswith(f"{STEPS}/{STEPS} steps\n")


@pytest.mark.slow
def test_the_unrolled_loop_of_an_accelerator_gives_the_same(monkeypatch: pytest.MonkeyPatch):
    base = run(restarts="select")
    jax.clear_caches()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    unrolled = jax.make_jaxpr(lambda key: run(key=key, restarts="select").transitions)(random.key(0))
    assert "optimization_barrier" in str(unrolled)
    assert_same_to_rounding(run(restarts="select"), base)
    jax.clear_caches()


def test_collecting_nothing_keeps_the_sums():
    result = run(collect=False)
    assert result.transitions is None
    assert_same(result.episodes, BASE.episodes)
    assert result.obs is None


def test_a_reduction_is_summed_over_time():
    result = run(collect=False, reduce=lambda t: {"reward": t.reward.sum(), "right": (t.action == 2).sum()})
    t = BASE.transitions
    assert t is not None
    np.testing.assert_allclose(result.totals["reward"], np.asarray(t.reward).sum(), 1e-5)
    assert int(result.totals["right"]) == (np.asarray(t.action) == 2).sum()


def test_the_key_may_be_an_int_or_a_key():
    assert_same(run(random.wrap_key_data(jnp.array([0, 0], jnp.uint32))), BASE)
    assert_same(run(np.int64(0)), BASE)
    other = run(1).transitions
    assert other is not None
    assert BASE.transitions is not None
    assert not np.array_equal(other.obs, BASE.transitions.obs)


def test_environments_draw_independently():
    assert BASE.transitions is not None
    assert len(np.unique(np.asarray(BASE.transitions.obs)[0, :, 0])) == ENVS


class Counting:
    """Counts the steps of its episode, from a number that it draws at the start, and acts by the count."""

    def init(self, key: Any) -> Any:
        return random.randint(key, (), 0, 3), jnp.int32(0)

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        start, count = memory
        return (start + count) % 3, (start, count + 1)


def test_a_policy_has_a_memory_that_starts_anew_with_each_episode():
    t = run(policy=Counting()).transitions
    assert t is not None
    done, actions = np.asarray(t.terminated | t.truncated), np.asarray(t.action)
    starts: list[int] = []
    for env in range(ENVS):
        ends = [0, *(np.flatnonzero(done[:, env]) + 1), STEPS]
        for begin, end in pairwise(ends):
            episode = actions[begin:end, env]
            assert np.array_equal(episode, (episode[:1] + np.arange(end - begin)) % 3)
            starts += episode[:1].tolist()
    assert set(starts) == {0, 1, 2}


def test_memory_goes_on_within_an_episode_and_across_segments():
    assert_same(run(policy=Counting(), progress=lambda *_: None).transitions, run(policy=Counting()).transitions)


def test_a_function_of_one_observation_is_a_policy():
    t = run(policy=lambda obs: jnp.where(obs[0] > 0, 0, 2)).transitions
    assert t is not None
    assert np.array_equal(t.action, np.where(np.asarray(t.obs)[..., 0] > 0, 0, 2))


def test_a_function_of_a_key_and_one_observation_is_a_policy():
    t = run(policy=lambda key, obs: random.randint(key, (), 0, 3)).transitions
    assert t is not None
    assert len(np.unique(np.asarray(t.action), axis=1).T) > 1  # environments draw independently
    assert len(np.unique(np.asarray(t.action), axis=0)) > 1


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda key, policy_state, obs: (obs, policy_state), "policy takes (key, policy_state, obs);"),
        (lambda: 0, "policy takes ();"),
        (Counting, "policy is "),
        ("greedy", "policy is 'greedy';"),
    ],
)
def test_another_signature_is_refused_with_the_right_one(policy: Any, message: str):
    with pytest.raises(ValidationError) as error:
        rollout(Line(), policy, 0, 2, 2)
    assert str(error.value).startswith(message)
    assert "init(key) -> memory and act(key, memory, obs) -> (action, memory)" in str(error.value)


class Forgetful(Counting):
    def act(self, key: Any, memory: Any, obs: Any) -> Any:
        return jnp.int32(0)


def test_an_act_that_returns_no_memory_is_refused():
    with pytest.raises(ValidationError, match=r"act returned a .*; expected \(action, memory\)"):
        rollout(Line(), Forgetful(), 0, 2, 2)


def test_the_given_params_are_used():
    still = run(params={"noise": 0.0, "stride": 0.0}).transitions
    assert still is not None
    begins = np.asarray(still.obs)[0]
    assert np.array_equal(np.asarray(still.next_obs)[0], begins)
    assert int(np.argmax(np.asarray(still.truncated)[:, 0])) == 11


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 2**32 - 2])  # the second carries from one word of the key into the other
def test_a_reproducible_environment_is_a_session_with_seed_plus_lane(seed: int):
    result = rollout(Line(), POLICY, seed, 3, STEPS, reproducible=True)
    t = jax.device_get(result.transitions)
    for lane in range(3):
        session = Session(Line())
        obs = session.reset(seed=seed + lane).obs
        for time in range(STEPS):
            np.testing.assert_allclose(t.obs[time, lane], obs, 1e-5, 1e-5)
            timestep = session.step(t.action[time, lane])
            np.testing.assert_allclose(t.reward[time, lane], timestep.reward, 1e-5, 1e-5)
            assert (t.terminated[time, lane], t.truncated[time, lane]) == timestep[2:4]
            over = session.lifecycle is not EnvironmentState.READY
            obs = session.reset().obs if over else timestep.obs


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((HostLine(), POLICY, 0, 2, 2), {}),
        (("Line", POLICY, 0, 2, 2), {}),
        ((Line(), POLICY, 0, 0, 2), {}),
        ((Line(), POLICY, 0, 2, -1), {}),
        ((Line(), POLICY, 0, 2.0, 2), {}),
        ((Line(), POLICY, 0, True, 2), {}),
        ((Line(), POLICY, -1, 2, 2), {}),
        ((Line(), POLICY, 0, 2, 2), {"params": {"mass": 1}}),
        ((Line(), POLICY, 0, 2, 2), {"restarts": "never"}),
    ],
)
def test_invalid_arguments_are_rejected(arguments: Any, options: Any):
    with pytest.raises(ValidationError):
        rollout(*arguments, **options)


@pytest.mark.parametrize("reproducible", [False, True])
def test_a_rollout_in_x64_has_the_same_shapes_and_sums(reproducible: bool):
    env, params = make("CartPole-v1")
    with jax.enable_x64(True):
        result = rollout(env, random_policy(env), 0, 4, 60, params=params, reproducible=reproducible)
        steps, episodes = jax.tree.map(np.asarray, (result.transitions, result.episodes))
    assert (steps.obs.shape, steps.obs.dtype, steps.reward.dtype) == ((60, 4, 4), np.float32, np.float32)
    ends = steps.terminated | steps.truncated
    assert episodes.episodes == ends.sum() > 0
    assert episodes.total_length == sum(int(np.flatnonzero(ends[:, env])[-1]) + 1 for env in range(4))


@pytest.mark.parametrize("id", mark_slow(PURE, {"CartPole-v1", "SourceTracking1D-v0"}))
def test_every_pure_environment_runs_in_x64(id: str):
    with jax.enable_x64(True):
        env, params = make(id)
        steps = rollout(env, random_policy(env, params), 0, 2, 3, params=params).transitions
        assert steps is not None
        assert jax.vmap(jax.vmap(env.observation_space(params).contains))(steps.obs).all()
