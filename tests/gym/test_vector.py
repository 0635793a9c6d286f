"""Many environments as one gymnasium.vector.VectorEnv."""

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics
from jax import random

from tropism import Session, StateError, ValidationError, auto_reset, episode_stats, make, normalize_obs
from tropism.gym import GymVectorEnv, from_gymnasium, to_gymnasium

SHORT = {"max_steps": 11, "theta_threshold": 0.08}  # episodes end in both ways, and not all at once


def cartpoles(num_envs: int = 3, mode: Any = "next_step", **arguments: Any) -> GymVectorEnv:
    env, params = make("CartPole-v1", params=SHORT)
    return GymVectorEnv(env, num_envs, params, autoreset_mode=mode, **arguments)


def python_cartpoles(num_envs: int, mode: AutoresetMode) -> SyncVectorEnv:
    """The same environments, stepped one by one by Gymnasium itself."""
    env, params = make("CartPole-v1", params=SHORT)
    return SyncVectorEnv([lambda: to_gymnasium(env, params)] * num_envs, autoreset_mode=mode)


def actions(steps: int, num_envs: int) -> Any:
    return np.random.default_rng(0).integers(0, 2, (steps, num_envs))


def through_pickle(env: Any) -> Any:
    return pickle.loads(pickle.dumps(env))


def assert_close(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_close(ours[key], theirs[key])
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        for one, other in zip(ours, theirs, strict=True):
            assert (one is None) == (other is None)
            if other is not None:
                np.testing.assert_allclose(one, other, atol=1e-5)
    else:
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_it_agrees_with_gymnasium_sync_vector(mode: AutoresetMode):
    ours, theirs = cartpoles(4, mode), python_cartpoles(4, mode)
    assert ours.metadata["autoreset_mode"] is mode
    obs, infos = theirs.reset(seed=5)
    mine = ours.reset(seed=5)
    assert_close(mine[0], obs)
    assert_close(mine[1], infos)
    for row in actions(30, 4):
        result, expected = ours.step(row), theirs.step(row)
        for one, other in zip(result[:4], expected[:4], strict=True):
            assert_close(one, other)
            assert one.dtype == other.dtype
        assert_close(result[4], expected[4])


def test_the_step_compiles_once():
    env = cartpoles(5, engine="xla")
    env.reset(seed=0)
    for row in actions(3, 5):
        env.step(row)
    program = env._program  # pyright: ignore[reportPrivateUsage]
    assert program.step._cache_size() == 1


def test_disabled_leaves_resetting_to_the_caller():
    ours, theirs = cartpoles(4, "disabled"), python_cartpoles(4, AutoresetMode.DISABLED)
    ours.reset(seed=5)
    theirs.reset(seed=5)
    ends = 0
    for row in actions(30, 4):
        result, expected = ours.step(row), theirs.step(row)
        assert_close(result[0], expected[0])
        assert_close(result[4], expected[4])
        done = result[2] | result[3]
        if done.any():
            ends += 1
            if not done.all():
                with pytest.raises(StateError, match="reset_mask"):
                    ours.step(row)
            mine, other = (env.reset(options={"reset_mask": done.copy()}) for env in (ours, theirs))
            assert_close(mine[0], other[0])
            assert_close(mine[1], other[1])
    assert ends > 2


@pytest.mark.parametrize("id", ["CartPole-v1", "PixelGridWorld-v0"])  # every id, in the other mode: test_surfaces_agree
def test_environment_i_is_the_session_of_seed_plus_i(id: str):
    env, params = make(id)
    vector = GymVectorEnv(env, 3, params)
    sessions = [Session(env, params) for _ in range(3)]
    obs, _ = vector.reset(seed=10)
    firsts = [session.reset(seed=10 + number).obs for number, session in enumerate(sessions)]
    np.testing.assert_allclose(obs, np.stack(firsts), atol=1e-6)
    over = [False] * 3
    sample = np.asarray(env.action_space(params).sample(random.key(0), (40, 3)))
    for row in sample:
        obs, reward, terminated, truncated, _ = vector.step(row)
        for number, session in enumerate(sessions):
            if over[number]:
                expected, over[number] = session.reset(), False
                assert reward[number] == 0
            else:
                expected = session.step(row[number])
                over[number] = expected.terminated or expected.truncated
            np.testing.assert_allclose(obs[number], expected.obs, atol=1e-4)
            assert (terminated[number], truncated[number]) == (expected.terminated, expected.truncated)
        assert vector.seeds == tuple(session.seed for session in sessions)


@pytest.mark.slow
def test_batches_beyond_the_gathering_size_agree_with_small_ones():
    large, small = cartpoles(300), cartpoles(3)
    large.reset(seed=0)
    small.reset(seed=0)
    for row in actions(20, 300):
        one, other = large.step(row), small.step(row[:3])
        np.testing.assert_allclose(one[0][:3], other[0], atol=1e-5)
        assert (one[2][:3] == other[2]).all()


def test_spaces_and_shapes():
    env = cartpoles(3)
    assert env.num_envs == 3
    assert env.single_action_space == gymnasium.spaces.Discrete(2)
    assert env.action_space == gymnasium.spaces.MultiDiscrete([2, 2, 2])
    assert env.observation_space.shape == (3, 4)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert env.observation_space.contains(obs)
    assert reward.dtype == np.float64
    assert terminated.dtype == truncated.dtype == bool


def test_returned_arrays_are_writable_copies():
    env, twin = cartpoles(), cartpoles()
    first, _ = env.reset(seed=0)
    twin.reset(seed=0)
    kept = first.copy()
    row = actions(1, 3)[0]
    result = env.step(row)
    assert (first == kept).all()
    for array in (*result[:4], *result[4].values()):
        array[:] = 1
    twin.step(row)
    after, other = env.step(row), twin.step(row)
    assert_close(after[0], other[0])
    assert_close(after[4], other[4])


def test_seeds_may_be_a_list_with_gaps():
    env, twin = cartpoles(), cartpoles()
    one, infos = env.reset(seed=[4, None, 6])
    other, _ = twin.reset(seed=4)
    assert (one[[0, 2]] == other[[0, 2]]).all()
    assert (one[1] != other[1]).any()
    assert env.seeds[0] == 4
    assert infos["episode_count"].tolist() == [1, 1, 1]
    env.reset()
    assert env.reset(seed=[4, None, 6])[1]["episode_count"].tolist() == [1, 3, 1]


def test_a_reset_without_a_seed_continues_from_the_last_one():
    env, session = cartpoles(2), Session(*make("CartPole-v1"))
    env.reset(seed=8)
    session.reset(seed=9)
    assert_close(env.reset()[0][1], session.reset().obs)
    assert env.seeds[1] == session.seed
    unseeded = [cartpoles(2).reset()[0] for _ in range(2)]
    assert (unseeded[0] != unseeded[1]).any()
    assert (unseeded[0][0] != unseeded[0][1]).any()


def test_options_apply_only_to_the_episodes_they_start():
    env = cartpoles(3)
    env.reset(seed=0)
    mask = np.array([False, True, False])
    _, infos = env.reset(options={"reset_mask": mask, "params": {"max_steps": 1}})
    assert infos["_step_count"].tolist() == mask.tolist()
    row = np.zeros(3, np.int64)
    assert env.step(row)[3].tolist() == [False, True, False]
    assert env.step(row)[4]["step_count"].tolist() == [2, 0, 2]
    assert env.step(row)[3].tolist() == [False, False, False]
    env.reset(seed=0, options={"params": {"max_steps": 1}})
    assert env.step(row)[3].all()


@pytest.mark.parametrize(
    "seed", [True, -1, 1.0, "12", [1, 2], [1, 2, -3], [1, 2, True], np.array([[1, 2, 3]])], ids=str
)
def test_bad_seeds_are_rejected(seed: Any):
    env = cartpoles()
    with pytest.raises(ValidationError) as caught:
        env.reset(seed=seed)
    assert caught.value.name == "seed"


@pytest.mark.parametrize(
    "options",
    [
        {"gravity": 1},
        {"params": {"gravty": 1}},
        [1],
        {"reset_mask": [True, True, True]},
        {"reset_mask": np.array([1, 0, 1])},
        {"reset_mask": np.array([True, True])},
        {"reset_mask": np.zeros(3, bool)},
    ],
    ids=str,
)
def test_bad_options_are_rejected_and_change_nothing(options: Any):
    env, twin = cartpoles(), cartpoles()
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ValidationError):
        env.reset(seed=1, options=options)
    row = actions(1, 3)[0]
    assert (env.step(row)[0] == twin.step(row)[0]).all()


def test_options_are_not_changed():
    options = {"reset_mask": np.array([True, False, True])}
    env = cartpoles()
    env.reset(seed=0)
    env.reset(options=options)
    assert list(options) == ["reset_mask"]


BAD = [
    ([0, 2, 1], "actions[1]", 2),
    (np.array([0, 2, 1]), "actions[1]", 2),
    (np.array([0, 1, -1]), "actions[2]", -1),
    (np.array([0.0, 1.0, 1.0]), "actions[0]", 0.0),
    (np.array([True, False, True]), "actions[0]", True),
    (np.array([0, 2**32, 0]), "actions[1]", 2**32),
    (np.array([0, 1]), "actions", None),
    (np.array([[0, 1, 1]]), "actions", None),
    (1, "actions", None),
    (None, "actions", None),
    ("011", "actions[0]", "0"),
]


@pytest.mark.parametrize(("batch", "name", "value"), BAD, ids=[str(row[0]) for row in BAD])
def test_a_bad_batch_of_actions_is_rejected_and_changes_nothing(batch: Any, name: str, value: Any):
    env, twin = cartpoles(), cartpoles()
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ValidationError) as caught:
        env.step(batch)
    assert caught.value.name == name
    assert value is None or caught.value.value == value
    assert "Discrete(2)" in str(caught.value)
    row = actions(1, 3)[0]
    assert_close(env.step(row)[4], twin.step(row)[4])


@pytest.mark.parametrize("batch", [np.full((2, 1), np.nan), np.full((2, 1), 2.5), np.zeros(2), np.zeros((2, 1), bool)])
def test_a_bad_batch_of_box_actions_is_rejected(batch: Any):
    env = GymVectorEnv(*make("Pendulum-v1")[:1], 2)
    env.reset(seed=0)
    with pytest.raises(ValidationError, match="Box"):
        env.step(batch)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.uint64])
def test_actions_of_any_integer_dtype_are_accepted(dtype: Any):
    env, twin = cartpoles(), cartpoles()
    env.reset(seed=0)
    twin.reset(seed=0)
    row = actions(1, 3)[0]
    assert (env.step(row.astype(dtype))[0] == twin.step(row)[0]).all()
    assert (env.step(row.tolist())[0] == twin.step(row)[0]).all()


def test_the_lifecycle_is_enforced():
    env = cartpoles(render_mode="rgb_array")
    for call in (lambda: env.step(np.zeros(3, np.int64)), env.render, lambda: env.seeds):
        with pytest.raises(StateError, match="CREATED; call reset"):
            call()
    with pytest.raises(StateError, match="CREATED"):
        env.reset(options={"reset_mask": np.array([True, False, False])})
    env.reset(seed=0)
    env.close()
    env.close()
    for call in (lambda: env.step(np.zeros(3, np.int64)), env.reset, env.render):
        with pytest.raises(StateError, match="CLOSED"):
            call()


@pytest.mark.parametrize("num_envs", [0, -1, True, 2.0, "2"])
def test_a_bad_number_of_environments_is_rejected(num_envs: Any):
    with pytest.raises(ValidationError, match="num_envs"):
        cartpoles(num_envs)


def test_bad_modes_are_rejected():
    with pytest.raises(ValidationError, match="next_step"):
        cartpoles(mode="sometimes")
    with pytest.raises(ValidationError, match="rgb_array"):
        cartpoles(render_mode="human")
    assert cartpoles(mode="SameStep").metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_a_host_environment_is_rejected():
    with pytest.raises(ValidationError, match="SyncVectorEnv"):
        GymVectorEnv(from_gymnasium("CartPole-v1"), 2)


def test_an_old_gymnasium_is_rejected_with_its_version(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gymnasium, "__version__", "1.0.0")
    with pytest.raises(ImportError, match=r"needs Gymnasium 1\.1 or later, but 1\.0\.0 is installed"):
        cartpoles()


def test_one_picture_per_environment():
    env = cartpoles(2, render_mode="rgb_array")
    env.reset(seed=0)
    pictures = env.render()
    assert isinstance(pictures, tuple)
    assert len(pictures) == 2
    session = Session(*make("CartPole-v1"))
    session.reset(seed=1)
    np.testing.assert_allclose(pictures[1].astype(int), session.render().astype(int), atol=2)
    silent = cartpoles(2)
    silent.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert silent.render() is None


@pytest.mark.parametrize("through", [copy.deepcopy, through_pickle])
def test_a_copy_continues_identically(through: Any):
    env = cartpoles()
    env.reset(seed=0, options={"params": {"gravity": 3.0}})
    rows = actions(20, 3)
    for row in rows[:3]:
        env.step(row)
    twin = through(env)
    for row in rows[3:]:
        one, other = env.step(row), twin.step(row)
        assert (one[0] == other[0]).all()
        assert_close(one[4], other[4])


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_gymnasium_episode_statistics_agree_with_ours(mode: str):
    env = RecordEpisodeStatistics(cartpoles(3, mode))
    env.reset(seed=0)
    ended = 0
    for row in actions(30, 3):
        _, _, terminated, truncated, infos = env.step(row)
        done = terminated | truncated
        if done.any():
            ended += 1
            ours = infos["final_info"] if mode == "same_step" else infos
            assert (infos["episode"]["l"][done] == ours["step_count"][done]).all()
            np.testing.assert_allclose(infos["episode"]["r"][done], ours["total_reward"][done])
    assert ended > 3


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_the_statistics_of_a_finished_episode_are_in_its_last_info(mode: Any):
    env, params = make("CartPole-v1", params=SHORT)
    vector = GymVectorEnv(episode_stats(env), 3, params, autoreset_mode=mode)
    vector.reset(seed=0)
    ended = 0
    for row in actions(30, 3):
        _, _, terminated, truncated, infos = vector.step(row)
        done = terminated | truncated
        if done.any():
            ended += 1
            last = infos["final_info"] if mode == "same_step" else infos
            np.testing.assert_allclose(last["episode_return"][done], last["total_reward"][done])
            np.testing.assert_array_equal(last["episode_length"][done], last["step_count"][done])
    assert ended > 3


def test_gymnasium_normalization_works_around_it():
    env = NormalizeObservation(cartpoles(8))
    env.reset(seed=0)
    obs = np.concatenate([env.step(row)[0] for row in actions(100, 8)])
    assert np.isfinite(obs).all()
    assert np.abs(obs.mean(0)).max() < 0.5


def test_statistics_persist_over_episodes():
    env, params = make("CartPole-v1", params=SHORT)
    vector = GymVectorEnv(normalize_obs(env), 2, params, autoreset_mode="same_step")
    vector.reset(seed=0)
    rows = actions(30, 2)
    first = [vector.step(row)[0] for row in rows]
    fresh = GymVectorEnv(normalize_obs(env), 2, params, autoreset_mode="same_step")
    fresh.reset(seed=list(vector.seeds))
    assert np.isfinite(np.stack(first)).all()
    assert not np.allclose(fresh.step(rows[0])[0], vector.step(rows[0])[0])


def test_keys_that_only_steps_report_are_masked_after_a_restart():
    env, params = make("CartPole-v1", params=SHORT)
    vector = GymVectorEnv(auto_reset(env, "same_step"), 2, params)
    _, infos = vector.reset(seed=0)
    assert "final_obs" not in infos
    done = np.zeros(2, bool)
    for row in actions(20, 2):
        _, _, terminated, truncated, infos = vector.step(row)
        assert (infos["_final_obs"] == ~done).all()
        assert infos["_step_count"].all()
        done = terminated | truncated


def test_info_has_the_seed_of_the_reset_until_the_restart():
    env = cartpoles(3)
    _, infos = env.reset(seed=[4, None, 0])
    assert infos["seed"].tolist() == [4, None, 0]
    done = np.zeros(3, bool)
    expected = np.array([4, None, 0], object)
    for row in actions(30, 3):
        _, _, terminated, truncated, infos = env.step(row)
        expected[done] = None
        assert infos["seed"].tolist() == expected.tolist()
        done = terminated | truncated
    assert expected.tolist() == [None] * 3
    mask = np.array([True, False, False])
    _, infos = env.reset(seed=7, options={"reset_mask": mask})
    assert (infos["seed"].tolist(), infos["_seed"].tolist()) == ([7, None, None], mask.tolist())


def test_positions_of_a_search_have_one_row_per_environment():
    env = gymnasium.make_vec("tropism/PlumeNav-v0", num_envs=3)
    _, info = env.reset(seed=0)
    assert info["agent_xy"].shape == (3, 2)
    assert env.step(np.zeros(3, int))[4]["agent_xy"].shape == (3, 2)
