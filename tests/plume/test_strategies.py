"""Strategies: steering turns to the target heading, and each strategy beats a random walk in its plume."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.plume.places import agent, scene

from tropism.core.registry import make
from tropism.core.rollout.api import rollout
from tropism.envs.plume.nav import PlumeNav
from tropism.envs.plume.tasks import DIFFICULTIES
from tropism.errors import ValidationError
from tropism.plume.motion import CARDINAL, COMPASS, Cardinal, Compass, Continuous, Motion, Oriented, RunTumble
from tropism.plume.search import search
from tropism.plume.strategies import (
    CastAndSurge,
    Klinotaxis,
    RandomWalk,
    RunAndTumble,
    Strategy,
)
from tropism.plume.strategies.catalog import make_strategy
from tropism.plume.strategies.steering import has_compass, steer

BODIES: list[Any] = [Cardinal(), Compass(), Oriented(), Continuous(speed=1.0, dt=1.0)]
FLIGHT = Continuous(boundary="absorb")  # the motion of PlumeNavPuffs-v0


def name_of(part: object) -> str:
    return type(part).__name__


def test_the_nearest_direction() -> None:
    angles = np.deg2rad(np.arange(-360, 361, 7))
    wanted = np.stack([np.cos(angles), np.sin(angles)], -1)
    for motion, table, count in ((Cardinal(), CARDINAL, 4), (Compass(), COMPASS, 8)):
        steps = table[np.asarray(steer(motion, jnp.zeros(()), jnp.asarray(angles))[0])]
        cosines = (steps * wanted).sum(-1) / np.linalg.norm(steps, axis=-1)
        assert (cosines >= np.cos(np.pi / count) - 1e-5).all()


@pytest.mark.parametrize(
    "motion", [Oriented(), Oriented(turn=30.0, on_grid=False), Continuous(turn_rate=10.0)], ids=name_of
)
def test_a_motion_without_a_compass_counts_its_turns(motion: Motion) -> None:
    @jax.jit
    def step(pose: Any, heading: Any, wanted: Any) -> Any:
        action, heading = steer(motion, heading, wanted)
        return motion.move(random.key(0), action, scene(pose)), heading

    for wanted in (3.0, -2.0, 0.5, 7.0):
        pose, heading = agent(60, 60, 90), jnp.zeros(())
        for _ in range(12):
            pose, heading = step(pose, heading, jnp.asarray(wanted))
        off = np.mod(heading + np.pi / 2 - pose.heading + np.pi, 2 * np.pi) - np.pi
        assert abs(off) < 1e-4  # the tracked heading is the real one, relative to the first
        assert np.cos(heading - wanted) > 0.7
    assert not has_compass(motion)


def assert_beats(env: PlumeNav, strategy: Strategy, *rivals: Strategy, num: int = 200) -> None:
    """Finds the source more often than each rival, with intervals that do not overlap."""
    low, _ = search(env, strategy, 0, num).success_interval()
    for rival in rivals:
        _, high = search(env, rival, 0, num).success_interval()
        assert low > high


def walks(motion: Motion) -> tuple[Strategy, Strategy]:
    return RandomWalk(motion, turning=1.0), RandomWalk(motion)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [Klinotaxis(), RunAndTumble(Cardinal())], ids=name_of)
def test_strategies_in_a_gaussian(strategy: Strategy) -> None:
    assert_beats(PlumeNav(), strategy, *walks(Cardinal()))


@pytest.mark.slow
@pytest.mark.parametrize("motion", BODIES[1:], ids=name_of)
@pytest.mark.parametrize("strategy", [Klinotaxis, RunAndTumble])
def test_strategies_in_a_gaussian_with_any_motion(strategy: Any, motion: Motion) -> None:
    assert_beats(PlumeNav(motion=motion), strategy(motion), *walks(motion))


@pytest.mark.slow
def test_run_and_tumble_with_its_own_motion() -> None:
    assert_beats(PlumeNav(motion=RunTumble()), RunAndTumble(), *walks(RunTumble()))


@pytest.mark.slow
def test_cast_and_surge_in_a_meandering_plume() -> None:
    env: Any = make("PlumeNavMeander-v0")[0]
    assert_beats(env, CastAndSurge(), *walks(Cardinal()))


@pytest.mark.slow
def test_cast_and_surge_among_puffs() -> None:
    env: Any = make("PlumeNavPuffs-v0", shared=True)[0]
    flyer = CastAndSurge(FLIGHT, smell=2, wind=(0, 1), apparent=True, threshold=1e-4, width=6.0)
    assert_beats(env, flyer, *walks(FLIGHT))


@pytest.mark.slow
def test_cast_and_surge_among_filaments() -> None:
    env: Any = make("PlumeNavFilaments-v0", shared=True)[0]
    assert_beats(env, CastAndSurge(env.motion, threshold=0.5), *walks(env.motion))


@pytest.mark.slow
@pytest.mark.parametrize("difficulty", [name for name in DIFFICULTIES if name != "standard"])
def test_a_difficulty_leaves_room_above_the_best_strategy(difficulty: str) -> None:
    env: Any = make("PlumeNavPuffs-v0", difficulty=difficulty)[0]
    found = search(env, make_strategy("cast-and-surge", env.sensor, env.motion), seed=0, num_episodes=128).found
    assert 0.25 < float(found.mean()) < 0.75


def test_a_cast_widens_to_both_sides_and_a_surge_goes_upwind() -> None:
    strategy = CastAndSurge(Cardinal(), surge=0.0, width=2.0)
    act = jax.jit(strategy.act)
    memory = strategy.init(random.key(0))
    actions: list[int] = []
    for _ in range(2 + 4 + 6):
        action, memory = act(random.key(0), memory, jnp.array([0.0, 1.0, 0.0]))  # no smell, wind from the left
        actions.append(int(action))
    one, other = actions[0], 2 - actions[0]
    assert {one, other} == {0, 2}  # up and down
    assert actions == [one] * 2 + [other] * 4 + [one] * 6
    action, memory = act(random.key(0), memory, jnp.array([0.5, 1.0, 0.0]))
    assert int(action) == 3
    action, memory = act(random.key(0), memory, jnp.array([0.5, 0.0, 1.0]))
    assert int(action) == 2


@pytest.mark.parametrize(("smell", "off"), [(1.0, 0.0), (0.0, 90.0)])
def test_a_flyer_derives_the_wind_from_the_apparent_wind(smell: float, off: float) -> None:
    strategy = CastAndSurge(FLIGHT, smell=2, wind=(0, 1), apparent=True, width=100.0)
    act = jax.jit(strategy.act)
    memory, heading, own = strategy.init(random.key(0)), 0.3, 0.0
    for _ in range(12):  # the wind blows to +y at 1 m/s; with odour it flies to -y, otherwise across
        felt = [np.sin(heading) - own, np.cos(heading)]
        (turn, speed), memory = act(random.key(0), memory, jnp.array([*felt, smell]))
        heading, own = heading + float(turn) * 6.25 * np.pi * 0.04, 2 * float(speed)
    np.testing.assert_allclose(np.abs(np.cos(heading + np.pi / 2)), np.cos(np.deg2rad(off)), atol=1e-4)


@pytest.mark.slow
def test_a_strategy_is_a_policy_for_a_rollout() -> None:
    strategy = Klinotaxis()
    run = rollout(PlumeNav(), strategy, 0, 16, 300, collect=False)
    assert int(run.episodes.episodes) > 16
    assert float(run.episodes.mean_return) == 1


def test_a_name_gives_the_default_strategy() -> None:
    """The strategy that the README constructs is the one of `tropism evaluate`."""
    env = make("PlumeNavMeander-v0")[0]
    assert isinstance(env, PlumeNav)
    for name, strategy in (("random-walk", RandomWalk()), ("cast-and-surge", CastAndSurge(smell=0, wind=(1, 2)))):
        assert eqx.tree_equal(make_strategy(name, env.sensor, env.motion), strategy)


def test_numbers_of_a_strategy_can_be_vmapped() -> None:
    def first(turning: Any) -> Any:
        strategy = RandomWalk(turning=turning)
        return strategy.act(random.key(3), strategy.init(random.key(0)), jnp.zeros(1))[1].target_heading

    wanted = np.asarray(jax.vmap(first)(jnp.array([0.0, 1.0])))
    assert wanted[0] != wanted[1]


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: Klinotaxis(RunTumble()), "motion"),
        (lambda: CastAndSurge(RunTumble()), "motion"),
        (lambda: CastAndSurge(Compass(), apparent=True), "apparent"),
        (lambda: CastAndSurge(width=0.0), "width"),
        (lambda: RandomWalk(turning=1.5), "turning"),
        (lambda: RunAndTumble(rising=-0.1), "rising"),
        (lambda: Klinotaxis(turn=float("nan")), "turn"),
    ],
)
def test_invalid_strategies_are_rejected(build: Any, name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        build()
