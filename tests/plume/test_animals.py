"""The fly, the moth, wind-relative actions and odour memory, against NumPy."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.plume.places import agent, scene

from tropism import PlumeNav
from tropism.errors import ValidationError
from tropism.plume import CounterTurning, Fly, Gaussian, Meander, search
from tropism.plume.motion import Cardinal, Continuous, WindRelative
from tropism.plume.receptors import Saturating
from tropism.plume.sensors import Concat, Concentration, OdourMemory, WindSense
from tropism.plume.start import Start
from tropism.plume.strategies.catalog import make_strategy
from tropism.plume.wind import Constant

WALK = Continuous(speed=10.0, turn_rate=math.pi / 0.02, dt=0.02)


def test_the_responses_of_the_fly_are_those_of_the_published_filters() -> None:
    odour = np.repeat([0.0, 1.0, 0.0, 0.3], 500)
    fly = Fly(WALK)

    def step(memory: Any, sample: Any) -> tuple[Any, Any]:
        after = fly.respond(memory, sample)
        return after, after

    _, found = jax.lax.scan(step, fly.init(random.key(0)), jnp.asarray(odour))
    a_on = a_off = on = fast = slow = 0.0
    expected = []
    for o in odour:
        a_on += (o - a_on) / 490
        a_off += (o - a_off) / 504
        c_on, c_off = o / (o + 0.01 + a_on), o / (o + 0.01 + a_off)
        on += (c_on - on) / 36
        fast += (c_off - fast) / 31
        slow += (c_off - slow) / 242
        expected.append((on, fast, slow))
    np.testing.assert_allclose(np.stack([found.on, found.fast, found.slow], -1), expected, atol=1e-5)
    off = np.maximum(np.asarray(found.slow) - np.asarray(found.fast), 0)
    assert off[:1000].max() < 0.05 < 0.2 < off[1000:1100].max()  # the OFF response follows the loss of odour


def test_the_fly_turns_and_walks_by_its_responses() -> None:
    fly = Fly(WALK)
    memory = fly.init(random.key(0))
    still = jnp.array([0.0, 1.0, 0.0])  # no odour, the wind from behind
    keys = random.split(random.key(1), 20_000)
    actions, _ = jax.vmap(fly.act, (0, None, None))(keys, memory, still)
    turns = np.degrees(np.asarray(actions[:, 0]) * math.pi)
    assert (turns != 0).mean() == pytest.approx(0.12, abs=0.01)
    sizes = np.abs(turns[turns != 0])
    assert np.median(sizes) == pytest.approx(20 * 0.4549, rel=0.1)  # 20° times the median of N²
    assert (turns > 0).mean() == pytest.approx((turns < 0).mean(), abs=0.01)
    np.testing.assert_allclose(actions[:, 1], 0.6, rtol=1e-5)  # 6 mm/s of 10
    # The wind blows from the left: without odour the fly drifts downwind, by 0.5° per step; on odour upwind.
    quiet = Fly(WALK, turns=(0.0, 0.0, 0.0))
    from_left = jnp.array([0.0, 0.0, -1.0])
    action, _ = quiet.act(random.key(0), memory, from_left)
    assert math.degrees(float(action[0]) * math.pi) == pytest.approx(-0.5, rel=1e-4)
    for _ in range(60):
        action, memory = quiet.act(random.key(0), memory, from_left.at[0].set(1.0))
    on = float(memory.on)
    assert on > 0.6
    assert math.degrees(float(action[0]) * math.pi) == pytest.approx(5 * on - 0.5, rel=1e-4)
    assert float(action[1]) == pytest.approx(0.6 * (1 + 0.45 * on), rel=1e-3)


def test_the_fly_needs_its_own_step_and_an_egocentric_wind() -> None:
    with pytest.raises(ValidationError, match=r"dt=0\.02"):
        Fly(Continuous())
    sensor = Concat((Concentration(), WindSense(egocentric=True)))
    assert isinstance(make_strategy("fly", sensor, WALK), Fly)
    for wrong in ((sensor, Cardinal()), (Concat((Concentration(), WindSense())), WALK)):
        with pytest.raises(ValidationError, match="egocentric"):
            make_strategy("fly", *wrong)


@pytest.mark.slow
def test_flies_find_a_source_in_a_gaussian_plume_more_often_with_the_wind() -> None:
    """Walking arena of the paper, in mm: with the wind's direction flies find an odour source, without wind rarely."""
    rates = []
    for speed in (-100.0, 0.0):
        env = PlumeNav(
            field=Gaussian((50.0, 80.0), sigma=60.0, flow=Constant((-speed, 0.0)), dt=0.02),
            sensor=Concat((Concentration(), WindSense(egocentric=True))),
            motion=WALK,
            start=Start(low=(150.0, 70.0), high=(200.0, 90.0)),
            grid_size=(301, 161),
            goal_radius=15.0,
            max_steps=3000,
        )
        rates.append(float(search(env, make_strategy("fly", env.sensor, env.motion), 0, 64).success_rate))
    assert rates[0] > rates[1] + 0.3


def test_the_moth_counter_turns_by_its_clock_and_casts_without_odour() -> None:
    moth = CounterTurning(narrow=20.0, widening=10.0, delay=2.0, period=8.0)
    memory = moth.init(random.key(0))
    memory = moth.act(random.key(0), memory, jnp.array([1.0, 1.0, 0.0]))[1]
    angles, sides = [], []
    for smell in [1.0] * 7 + [0.0] * 40:  # the wind blows to +x: upwind is π
        before = memory
        _, memory = moth.act(random.key(0), before, jnp.array([smell, 1.0, 0.0]))
        difference = (float(memory.heading) - math.pi + math.pi) % (2 * math.pi) - math.pi
        angles.append(math.degrees(abs(difference)))
        sides.append(float(memory.side))
    np.testing.assert_allclose(angles[:7], 20.0, atol=1e-3)
    np.testing.assert_allclose(angles[7:17], 20 + 7 * np.arange(1, 11), atol=1e-3)
    np.testing.assert_allclose(angles[17:], 90.0, atol=1e-3)
    turned = (np.flatnonzero(np.diff(sides)) + 1).tolist()
    # By the clock, two steps after the loss, by the clock; then 8 · 18/10 steps, because the last turn came after 18.
    assert turned == [6, 8, 16, 24, 39]


@pytest.mark.slow
def test_the_moth_finds_the_source_of_a_meandering_plume() -> None:
    env = PlumeNav(
        field=Meander(source=(16.0, 64.0)),
        sensor=Concat((Saturating(Concentration(), half=0.001), WindSense())),
        start=Start(low=(40.0, 40.0), high=(80.0, 88.0)),
        max_steps=300,
    )
    found = search(env, make_strategy("counter-turning", env.sensor, env.motion), 0, 64)
    chance = search(env, make_strategy("random-walk", env.sensor, env.motion), 0, 64)
    assert float(found.success_rate) > 0.6
    assert float(chance.success_rate) < 0.3


@pytest.mark.parametrize(("action", "expected"), [(0, (-1, 0)), (1, (0, -1)), (2, (0, 1)), (3, (1, 0))])
def test_actions_relative_to_the_wind(action: int, expected: tuple[float, float]) -> None:
    """The wind blows to +x; facing it, to −x, left is −y."""
    blowing = Gaussian(flow=Constant((2.0, 0.0)))
    moved = WindRelative(step_length=3.0).move(random.key(0), action, scene(agent(50, 50, heading=33.0), blowing))
    np.testing.assert_allclose([moved.moved_x, moved.moved_y], 3 * np.array(expected), atol=1e-4)
    assert abs(float(moved.heading)) == pytest.approx(math.pi, abs=1e-5)


def test_the_estimate_of_the_wind_has_memory() -> None:
    motion, blowing = WindRelative(memory_steps=4.0), Gaussian(flow=Constant((0.0, -1.0)))  # upwind is up
    pose, estimate = agent(50, 50, heading=0.0), np.array([1.0, 0.0])
    for _ in range(6):
        pose = motion.move(random.key(0), 0, scene(pose, blowing))
        estimate = estimate + (np.array([0.0, 1.0]) - estimate) / 4
        estimate /= np.hypot(*estimate)
        assert float(pose.heading) == pytest.approx(math.atan2(estimate[1], estimate[0]), abs=1e-5)
        np.testing.assert_allclose([pose.moved_x, pose.moved_y], estimate, atol=1e-5)
    calm = motion.move(random.key(0), 0, scene(pose, Gaussian()))
    assert float(calm.heading) == pytest.approx(float(pose.heading), abs=1e-5)


def test_odour_memory_is_the_mean_and_intermittency_of_a_window() -> None:
    sensor = OdourMemory(threshold=0.3, window=4)
    place = Gaussian((64.0, 64.0), sigma=10.0)
    memory: Any = sensor.start((128, 128))
    distances = [0.0, 30.0, 5.0, 12.0, 20.0, 3.0, 50.0]
    smells = np.exp(-(np.array(distances) ** 2) / 200)
    for step, distance in enumerate(distances):
        obs, memory = sensor.sense(random.key(0), memory, scene(agent(64 + distance, 64), place))
        window = smells[max(0, step - 3) : step + 1]
        np.testing.assert_allclose(obs, [window.mean(), (window >= 0.3).mean()], rtol=1e-5)
        assert sensor.space((128, 128)).contains(np.asarray(obs))
