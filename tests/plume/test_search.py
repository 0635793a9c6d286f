"""search: each episode is that of a session, independent of the others."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tropism.core.session.session import Session
from tropism.core.transforms import time_limit
from tropism.envs.cartpole import CartPole
from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ValidationError
from tropism.plume.motion import Cardinal, Compass
from tropism.plume.rewards import StepPenalty
from tropism.plume.search import Outcome, search
from tropism.plume.start import Start
from tropism.plume.strategies import Klinotaxis, RandomWalk, Strategy


class Left(Strategy):
    """Goes left and counts its steps."""

    def init(self, key: Any) -> Any:
        return jnp.int32(0)

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        return jnp.int32(3), memory + 1


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return search(PlumeNav(), Klinotaxis(), 7, 20, paths=True)


@pytest.mark.slow
def test_an_episode_is_that_of_a_session() -> None:
    env = PlumeNav(max_steps=40, reward=StepPenalty(0.25))
    outcome = search(env, Left(), 3, 5)
    for episode in range(5):
        session = Session(env)
        timestep = session.reset(seed=3 + episode)
        steps, done, total, start = 0, False, 0.0, timestep.info["agent_xy"]
        while not done:
            timestep = session.step(3)
            steps, total, done = steps + 1, total + timestep.reward, timestep.terminated or timestep.truncated
        assert (int(outcome.steps[episode]), float(outcome.reward[episode])) == (steps, total)
        assert outcome.start[episode].tolist() == list(start)
        assert outcome.end[episode].tolist() == list(timestep.info["agent_xy"])
        assert bool(outcome.found[episode]) == timestep.info["goal_reached"]


@pytest.mark.slow
def test_results_do_not_depend_on_the_batch(outcome: Outcome) -> None:
    few = search(PlumeNav(), Klinotaxis(), 10, 3)
    np.testing.assert_array_equal(few.steps, outcome.steps[3:6])
    np.testing.assert_array_equal(few.path_length, outcome.path_length[3:6])


@pytest.mark.slow
def test_paths_lead_from_start_to_end_and_stay_there(outcome: Outcome) -> None:
    path = np.asarray(outcome.path)
    assert path.shape == (1001, 20, 2)
    np.testing.assert_array_equal(path[0], outcome.start)
    steps = np.abs(np.diff(path, axis=0)).sum(-1)
    np.testing.assert_allclose(steps.sum(0), outcome.path_length)
    for episode, count in enumerate(np.asarray(outcome.steps)):
        np.testing.assert_array_equal(path[count:, episode], np.broadcast_to(outcome.end[episode], (1001 - count, 2)))
    assert (np.hypot(*(np.asarray(outcome.end) - 64).T) <= 5).all()
    assert search(PlumeNav(), Klinotaxis(), 7, 2).path is None


def test_rates_and_efficiency(outcome: Outcome) -> None:
    assert float(outcome.success_rate) == 1
    assert outcome.success_interval() == pytest.approx((0.8389, 1.0), abs=1e-3)  # Wilson's for 20 of 20
    assert (outcome.efficiency > 0).all()
    assert (outcome.efficiency <= 1 + 1e-6).all()
    straight = search(PlumeNav(), Left(), 0, 1, params={"start.fixed": 1, "start.point": (80.0, 64.0)})
    assert int(straight.steps[0]) == 11
    assert float(straight.efficiency[0]) == 1


def test_wrapping_around_does_not_add_to_the_path_length() -> None:
    env = PlumeNav(
        motion=Cardinal(boundary="wrap"), start=Start(fixed=1, point=(0.0, 5.0)), goal_radius=0.0, max_steps=10
    )
    assert float(search(env, Left(), 0, 1).path_length[0]) == 10


def test_params_and_transforms() -> None:
    longer = search(PlumeNav(), Left(), 0, 4, params={"max_steps": 30})
    assert set(longer.steps.tolist()) == {30}
    short = search(time_limit(PlumeNav(), 9), Left(), 0, 4)
    assert set(short.steps.tolist()) == {9}


def test_a_strategy_has_its_own_random_numbers() -> None:
    ends = np.asarray(search(PlumeNav(max_steps=50), RandomWalk(), 0, 50).end)
    starts = np.asarray(search(PlumeNav(max_steps=50), RandomWalk(), 0, 50).start)
    assert len({tuple(step) for step in (ends - starts).tolist()}) > 25


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((CartPole(), Left(), 0, 1), r"env is CartPole\(\)"),
        (("PlumeNav-v0", Left(), 0, 1), "env"),
        ((PlumeNav(), None, 0, 1), "policy"),
        ((PlumeNav(), Left(), -1, 1), "seed"),
        ((PlumeNav(), Left(), 0, 0), "num_episodes"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_wrong_arguments_are_rejected(arguments: Any, name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        search(*arguments)


def test_new_numbers_do_not_recompile() -> None:
    traces = 0

    class Counted(RandomWalk):
        def act(self, key: Any, memory: Any, obs: Any) -> Any:
            nonlocal traces
            traces += 1
            return super().act(key, memory, obs)

    env = PlumeNav(motion=Compass(), max_steps=5)
    search(env, Counted(Compass(), 0.5), 0, 2)
    before = traces
    search(env, Counted(Compass(), 0.25), 9, 2, params={"field.sigma": 3.0})
    assert traces == before
