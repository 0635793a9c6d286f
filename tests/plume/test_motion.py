"""Motions: the contract's directions, limits, walls and obstacles."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.plume.places import ARENA, agent, blocking, scene

from tropism.core.spaces import Box, Discrete
from tropism.errors import ValidationError
from tropism.plume.fields import Gaussian
from tropism.plume.motion import Cardinal, Compass, Continuous, Motion, Oriented, RunTumble
from tropism.plume.scene import AgentPose, Arena, Scene
from tropism.plume.wind import Constant

KEY = random.key(0)
SMALL = Arena((0.0, 0.0), (4.0, 3.0), None, (4, 5))


def move(motion: Motion, action: Any, pose: AgentPose, arena: Arena = ARENA, key: Any = KEY) -> AgentPose:
    return _move(motion, key, jnp.asarray(action), scene(pose, arena=arena))


@eqx.filter_jit
def _move(motion: Motion, key: Any, action: Any, here: Scene) -> AgentPose:
    return motion.move(key, action, here)


def place(pose: AgentPose) -> tuple[float, float]:
    return float(pose.xy[0]), float(pose.xy[1])


def degrees(pose: AgentPose) -> float:
    return float(np.degrees(pose.heading))


@pytest.mark.parametrize(
    ("action", "step", "heading"), [(0, (0, 1), 90), (1, (1, 0), 0), (2, (0, -1), -90), (3, (-1, 0), 180)]
)
def test_cardinal_has_the_contract_directions(action: int, step: tuple[int, int], heading: float) -> None:
    after = move(Cardinal(), action, agent(10, 20))
    assert place(after) == (10 + step[0], 20 + step[1])
    assert tuple(after.velocity.tolist()) == step
    np.testing.assert_allclose(degrees(after), heading, rtol=1e-5)
    assert place(move(Cardinal(step_length=3), action, agent(10, 20))) == (10 + 3 * step[0], 20 + 3 * step[1])
    assert Cardinal().action_space == Discrete(4)


def test_compass_stays_or_moves_clockwise_from_up() -> None:
    steps = [(0, 0), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]
    for action, (x, y) in enumerate(steps):
        after = move(Compass(), action, agent(10, 20, 33.0))
        assert place(after) == (10 + x, 20 + y)
        expected = np.degrees(np.arctan2(y, x)) if action else 33.0
        np.testing.assert_allclose(degrees(after), expected, rtol=1e-5)
    assert Compass().action_space == Discrete(9)
    assert len(Compass.words) == 9


def test_oriented_turns_on_the_spot_and_moves_forward() -> None:
    facing_right = agent(10, 20)
    left, right = move(Oriented(), 1, facing_right), move(Oriented(), 2, facing_right)
    assert place(left) == place(right) == (10, 20)
    np.testing.assert_allclose([degrees(left), degrees(right)], [90, -90], rtol=1e-5)
    assert place(move(Oriented(), 0, left)) == (10, 21)
    assert place(move(Oriented(), 0, right)) == (10, 19)
    around = facing_right
    for _ in range(4):
        around = move(Oriented(), 0, move(Oriented(), 1, around))
    assert place(around) == (10, 20)
    np.testing.assert_allclose(degrees(around), 0, atol=1e-4)
    free = move(Oriented(turn=30.0, on_grid=False, step_length=0.5), 0, agent(1, 1, 60))
    np.testing.assert_allclose(place(free), (1.25, 1 + 0.5 * np.sin(np.pi / 3)), rtol=1e-5)


def test_oriented_faces_its_direction_of_motion_on_a_grid() -> None:
    for heading in (-170.0, -50.0, 10.0, 44.0, 46.0, 179.0):
        initial_heading = float(np.degrees(Oriented().initial_heading(jnp.deg2rad(jnp.asarray(heading)))))
        assert abs(initial_heading % 90 - 90 * round(initial_heading % 90 / 90)) < 1e-3
        assert abs((initial_heading - heading + 180) % 360 - 180) <= 45
    assert float(Oriented(on_grid=False).initial_heading(jnp.asarray(0.3))) == pytest.approx(0.3)


def test_run_and_tumble() -> None:
    ran = move(RunTumble(step_length=2.0), 0, agent(10, 20, 30))
    np.testing.assert_allclose(place(ran), (10 + 2 * np.cos(np.pi / 6), 21), rtol=1e-5)
    tumble = jax.vmap(lambda key: move(RunTumble(), 1, agent(10, 20, 30), key=key))
    tumbled = tumble(random.split(KEY, 2000))
    np.testing.assert_array_equal(tumbled.xy, np.broadcast_to([10, 20], (2000, 2)))
    counts = np.histogram(tumbled.heading, 8, (-np.pi, np.pi))[0]
    assert ((counts - 250) ** 2 / 250).sum() < 24.3  # chi-square, 7 degrees of freedom, p = 0.001


def test_continuous_turns_first_and_keeps_its_limits() -> None:
    motion = Continuous()
    assert motion.action_space == Box(np.array([-1, 0], np.float32), np.array([1, 1], np.float32))
    after = move(motion, [1.0, 1.0], agent(5, 5))
    np.testing.assert_allclose(degrees(after), np.degrees(6.25 * np.pi * 0.04), rtol=1e-5)  # 45° to the left
    np.testing.assert_allclose(after.xy - 5, 2 * 0.04 * np.array([1, 1]) / np.sqrt(2), rtol=1e-4)
    np.testing.assert_allclose(degrees(move(motion, [-0.5, 0.0], agent(5, 5))), -22.5, rtol=1e-5)
    half = move(motion, [0.0, 0.5], agent(5, 5, 90))
    np.testing.assert_allclose(half.xy, [5, 5.04], rtol=1e-5)
    np.testing.assert_allclose(half.velocity, [0, 0.04], atol=1e-5)


def test_drift_adds_the_wind() -> None:
    field = Gaussian(flow=Constant((0.5, -1.0)))
    for drift, expected in ((True, [5.02, 4.96]), (False, [5, 5])):
        after = Continuous(drift=drift).move(KEY, jnp.zeros(2), scene(agent(5, 5), field))
        np.testing.assert_allclose(after.xy, expected, rtol=1e-5)


def test_stop_at_the_wall() -> None:
    after = move(Compass(), 2, agent(4, 3), SMALL)
    assert place(after) == (4, 3)
    assert after.velocity.tolist() == [0, 0]
    assert not bool(after.absorbed)


def test_wrap_on_a_grid_moves_to_the_opposite_side() -> None:
    motion = Compass(boundary="wrap")
    for action, start, end in ((2, (4, 3), (0, 0)), (6, (0, 0), (4, 3)), (3, (4, 1), (0, 1)), (5, (2, 0), (2, 3))):
        after = move(motion, action, agent(*start), SMALL)
        assert place(after) == end
        assert np.abs(after.velocity).max() == 1  # not a move across the arena
        assert not bool(after.absorbed)


def test_wrap_off_the_grid_joins_the_edges() -> None:
    after = move(Compass(boundary="wrap", on_grid=False, step_length=0.75), 3, agent(3.5, 1), SMALL)
    assert place(after) == (0.25, 1)
    assert after.velocity.tolist() == [0.75, 0]


def test_absorb_marks_an_agent_that_leaves() -> None:
    motion = Cardinal(boundary="absorb")
    after = move(motion, 1, agent(4, 1), SMALL)
    assert bool(after.absorbed)
    assert place(after) == (4, 1)
    assert not bool(move(motion, 1, agent(3, 1), SMALL).absorbed)
    assert bool(move(motion, 3, after, SMALL).absorbed)  # permanently


def test_obstacles_block() -> None:
    arena = blocking((11, 20))
    blocked = move(Cardinal(), 1, agent(10, 20), arena)
    assert place(blocked) == (10, 20)
    assert blocked.velocity.tolist() == [0, 0]
    assert degrees(blocked) == 0
    assert place(move(Cardinal(), 0, agent(10, 20), arena)) == (10, 21)
    wrapped = blocking((0, 2), size=5)
    assert place(move(Cardinal(boundary="wrap"), 1, agent(4, 2), wrapped)) == (4, 2)


LONG = [  # motion, action, start, end of the longest allowed path
    (Cardinal(step_length=7.0), 1, (10, 20), (17, 20)),
    (Cardinal(step_length=7.0, on_grid=False), 1, (10.3, 20.2), (17.3, 20.2)),
    (Compass(step_length=6.0), 2, (10, 20), (16, 26)),
    (Continuous(speed=150.0), (0, 1), (10.4, 20.2), (16.4, 20.2)),
    (RunTumble(step_length=9.5), 0, (9, 22), (18.5, 22)),
    (Oriented(step_length=12.0), 0, (5, 20), (17, 20)),
]


@pytest.mark.parametrize(("body", "action", "start", "end"), LONG)
def test_a_long_step_does_not_jump_over_a_wall(body: Motion, action: Any, start: Any, end: Any) -> None:
    wall = blocking(*((13, y) for y in range(128)))
    stopped = move(body, jnp.asarray(action, float) if isinstance(action, tuple) else action, agent(*start), wall)
    assert place(stopped) == pytest.approx(start)
    assert stopped.velocity.tolist() == [0, 0]
    behind = blocking(*((int(end[0]) + 2, y) for y in range(128)))
    free = move(body, jnp.asarray(action, float) if isinstance(action, tuple) else action, agent(*start), behind)
    assert place(free) == pytest.approx(end)


def test_wrapping_does_not_jump_over_a_wall() -> None:
    arena = blocking(*((0, y) for y in range(8)), size=8)
    assert place(move(Cardinal(boundary="wrap", step_length=4.0), 1, agent(6, 3), arena)) == (6, 3)
    assert place(move(Cardinal(boundary="wrap", step_length=4.0), 1, agent(2, 3), arena)) == (6, 3)
    assert place(move(Cardinal(boundary="stop", step_length=4.0), 1, agent(6, 3), arena)) == (7, 3)


@pytest.mark.parametrize("angle", range(0, 360, 7))
def test_a_ring_of_obstacles_is_closed(angle: float) -> None:
    x, y = np.meshgrid(np.arange(41), np.arange(41))
    around = np.hypot(x - 20, y - 20).round() == 6
    arena = Arena((-10.0, -10.0), (10.0, 10.0), jnp.asarray(around), (41, 41))
    body = RunTumble(step_length=8.0)
    assert place(move(body, 0, agent(0, 0, heading=angle), arena)) == (0, 0)


def test_a_path_between_obstacles_is_differentiable() -> None:
    def end(speed: Any) -> Any:
        body = Continuous(speed=speed, dt=1.0)
        return body.move(KEY, jnp.array([0.0, 1.0]), scene(agent(3, 3), arena=blocking((3, 5)))).x

    assert jax.jit(jax.grad(end))(2.0) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("boundary", ["stop", "wrap", "absorb"])
@pytest.mark.parametrize("motion", [Cardinal, Compass, Oriented])
def test_positions_stay_whole_numbers_on_a_grid(motion: Any, boundary: Any) -> None:
    body = motion(boundary=boundary)
    walls = blocking((2, 2), (3, 1), size=6)

    def step(pose: AgentPose, key: Any) -> tuple[AgentPose, Any]:
        after = body.move(key, body.action_space.sample(key), scene(pose, arena=walls))
        return after, after.xy

    _, xy = jax.jit(lambda keys: jax.lax.scan(step, agent(0, 0), keys))(random.split(KEY, 500))
    np.testing.assert_array_equal(xy, np.round(xy))
    assert xy.min() == 0
    assert xy.max() == 5
    assert not walls.is_blocked(xy).any()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Cardinal(boundary="bounce"), "boundary"),  # pyright: ignore[reportArgumentType]
        (lambda: Cardinal(step_length=0.5), "step_length"),
        (lambda: Compass(step_length=0.0, on_grid=False), "step_length"),
        (lambda: Oriented(turn=0.0), "turn"),
        (lambda: RunTumble(on_grid=True), "on_grid"),
        (lambda: RunTumble(step_length=-1.0), "step_length"),
        (lambda: Continuous(speed=float("nan")), "speed"),
        (lambda: Continuous(on_grid=True), "on_grid"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_invalid_motions_are_rejected(make: Any, name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        make()


def test_double_precision() -> None:
    with jax.enable_x64(True):
        for motion, action in ((Cardinal(), 0), (Oriented(), 0), (RunTumble(), 1), (Continuous(drift=True), [0.5, 1])):
            pose = agent(10, 10, 5)
            after = _move(motion, KEY, jnp.asarray(action), scene(pose))
            assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, pose)
