"""PlumeNav: the contract's numbers, options and errors, and invariants."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax import random

from tropism.core.params import override
from tropism.core.registry import make
from tropism.core.rollout.api import rollout
from tropism.core.rollout.policy import random_policy
from tropism.core.session.session import Session
from tropism.core.spaces import Box, Discrete
from tropism.envs.plume.nav import PlumeNav
from tropism.errors import ValidationError
from tropism.plume.fields import Gaussian, Meander, Puffs
from tropism.plume.motion import Cardinal, Continuous
from tropism.plume.receptors import Noisy
from tropism.plume.rewards import Singh
from tropism.plume.sensors import Concentration, Position, WindSense, dict_sensor
from tropism.plume.start import Start
from tropism.plume.wind import Constant

KEY = random.key(0)
INFO = {
    *("goal_reached", "agent_xy", "agent_position", "source_location", "goal_location"),
    *("distance_to_goal", "concentration_at_agent", "heading"),
}
WALL = np.zeros((128, 128), bool)
WALL[60:70, 50] = True


@eqx.filter_jit
def step(env: PlumeNav, state: Any, action: Any, params: Any) -> Any:
    return env.step(random.key(1), state, action, params)


def reset(env: PlumeNav, **options: Any) -> tuple[Any, Any, Any]:
    """`(obs, state, params)` after a reset with options."""
    params = env.configure(env.default_params(), options)
    return *eqx.filter_jit(env.reset)(KEY, params), params


def test_the_contracts_numbers() -> None:
    env = PlumeNav()
    params = env.default_params()
    assert (env.grid_size, env.low, env.high) == ((128, 128), (0, 0), (127, 127))
    assert params.field == Gaussian((64.0, 64.0), 20.0)
    assert (params.goal_radius, params.max_steps) == (5, 1000)
    assert env.action_space(params) == Discrete(4)
    assert env.observation_space(params) == Box(0, 1, (1,))
    assert make("PlumeNav-v0")[0] == env
    assert hash(make("PlumeNav-v0")[0]) == hash(env)


@pytest.mark.parametrize(
    ("start", "action", "reached"), [((64, 70), 2, True), ((64, 71), 2, False), ((60, 67), 1, True)]
)
def test_the_goal_terminates_with_the_reward(start: Any, action: int, reached: bool) -> None:
    env = PlumeNav()
    _, state, params = reset(env, start_location=start)
    _, _, reward, done, info = step(env, state, action, params)
    assert (float(reward), bool(done), bool(info["terminated"]), bool(info["goal_reached"])) == (reached,) * 4
    assert not bool(info["truncated"])


def test_truncation() -> None:
    env = PlumeNav(max_steps=2)
    _, state, params = reset(env, start_location=(0, 0))
    *_, done, info = step(env, state, 0, params)
    assert not bool(done)
    *_, done, info = step(env, step(env, state, 0, params)[1], 0, params)
    assert bool(done)
    assert (bool(info["terminated"]), bool(info["truncated"])) == (False, True)


def test_an_absorbing_boundary_terminates() -> None:
    env = PlumeNav(motion=Cardinal(boundary="absorb"), reward=Singh())
    _, state, params = reset(env, start_location=(0, 9))
    _, _, reward, done, info = step(env, state, 3, params)
    assert bool(done)
    assert bool(info["terminated"])
    assert not bool(info["goal_reached"])
    np.testing.assert_allclose(reward, -10 - 5 / 300, rtol=1e-4)


def test_info_at_reset_and_step_is_whole_on_a_grid() -> None:
    session = Session(PlumeNav(), None)
    first = session.reset(seed=3, options={"start_location": (10, 20)})
    second = session.step(1)
    for timestep, place in ((first, (10, 20)), (second, (11, 20))):
        info = timestep.info
        assert set(info) == INFO
        assert tuple(int(side) for side in info["agent_xy"]) == place
        assert all(isinstance(side, int | np.integer) for side in (*info["agent_xy"], *info["goal_location"]))
        assert tuple(info["source_location"]) == tuple(info["goal_location"]) == (64, 64)
        np.testing.assert_allclose(info["distance_to_goal"], np.hypot(place[0] - 64, place[1] - 64), rtol=1e-6)
        np.testing.assert_allclose(info["concentration_at_agent"], timestep.obs[0], rtol=1e-6)


def test_info_off_the_grid_is_real() -> None:
    env, params = make("PlumeNavPuffs-v0", shared=True)
    info = jax.eval_shape(lambda key: env.info(env.reset(key, params)[1], params), KEY)
    assert all(side.dtype == jnp.float32 for side in info["agent_xy"])


def test_options_move_the_source_and_the_start() -> None:
    env = PlumeNav()
    obs, state, params = reset(env, source_location=(20, 30), start_location=(20, 40))
    np.testing.assert_allclose(obs, [np.exp(-100 / 800)], rtol=1e-5)
    assert state.agent.xy.tolist() == [20, 40]
    assert [int(side) for side in env.info(state, params)["source_location"]] == [20, 30]
    assert bool(step(env, reset(env, source_location=(1, 1), start_location=(1, 7))[1], 2, params)[3]) is False


@pytest.mark.parametrize("name", ["start_location", "source_location"])
@pytest.mark.parametrize("place", [(128, 0), (-1, 5), (np.nan, 3), (1, 2, 3), "here", None, (1.5, 3), (50, 64), True])
def test_invalid_locations_are_rejected(name: str, place: Any) -> None:
    env = PlumeNav(obstacles=WALL)
    with pytest.raises(ValidationError, match=name):
        env.configure(env.default_params(), {name: place})


def test_unknown_options_are_rejected() -> None:
    with pytest.raises(ValidationError, match="start_location"):
        PlumeNav().configure(PlumeNav().default_params(), {"start": (1, 1)})


@pytest.mark.parametrize(
    ("make_it", "name"),
    [
        (lambda: PlumeNav(Gaussian(sigma=0.0)), "sigma"),
        (lambda: PlumeNav(Gaussian(sigma=float("nan"))), "sigma"),
        (lambda: PlumeNav(Gaussian((200.0, 64.0))), "source"),
        (lambda: PlumeNav(Gaussian((63.5, 64.0))), "source"),
        (lambda: PlumeNav(Gaussian((50.0, 64.0)), obstacles=WALL), "source"),
        (lambda: PlumeNav(grid_size=(1, 128)), "grid_size"),
        (lambda: PlumeNav(grid_size=(64.0, 64)), "grid_size"),
        (lambda: PlumeNav(grid_size=128), "grid_size"),
        (lambda: PlumeNav(Gaussian((64.0, 64.0)), grid_size=(32, 32)), "source"),
        (lambda: make("PlumeNavPuffs-v0", keep="x"), "keep"),
        (lambda: make("PlumeNavPuffs-v0", keep=float("nan")), "keep"),
        (lambda: make("PlumeNavPuffs-v0", shared="no"), "shared"),
        (lambda: PlumeNav(low=(5.0, 5.0), high=(5.0, 100.0)), "high"),
        (lambda: PlumeNav(low=(0.5, 0.0)), "low"),
        (lambda: PlumeNav(high=(np.inf, 1.0)), "high"),
        (lambda: PlumeNav(obstacles=np.zeros((128, 127), bool)), "obstacles"),
        (lambda: PlumeNav(obstacles=np.zeros((128, 128))), "obstacles"),
        (lambda: PlumeNav(goal_radius=-1), "goal_radius"),
        (lambda: PlumeNav(goal_radius=True), "goal_radius"),
        (lambda: PlumeNav(goal_radius=np.nan), "goal_radius"),
        (lambda: PlumeNav(max_steps=0), "max_steps"),
        (lambda: PlumeNav(max_steps=10.0), "max_steps"),
        (lambda: PlumeNav(trail=-1), "trail"),
        (lambda: PlumeNav("gaussian"), "field"),  # pyright: ignore[reportArgumentType]
        (lambda: PlumeNav(sensor=Cardinal()), "sensor"),  # pyright: ignore[reportArgumentType]
        (lambda: PlumeNav(motion=Concentration()), "motion"),  # pyright: ignore[reportArgumentType]
        (lambda: PlumeNav(reward=1.0), "reward"),  # pyright: ignore[reportArgumentType]
        (lambda: PlumeNav(start=(1, 1)), "start"),  # pyright: ignore[reportArgumentType]
        (lambda: PlumeNav(start=Start(low=(0.0, 0.0), high=(200.0, 3.0))), "start"),
        (lambda: PlumeNav(start=Start(low=(9.0, 9.0), high=(3.0, 3.0))), "start"),
        (lambda: PlumeNav(start=Start(low=(9.2, 9.2), high=(9.8, 9.8))), "start"),
        (lambda: PlumeNav(start=Start(fixed=1, point=(50.0, 64.0)), obstacles=WALL), "start"),
        (lambda: make("PlumeNavPuffs-v0", regime="storm"), "regime"),
        (lambda: make("PlumeNavPuffs-v0", difficulty="easy"), "difficulty"),
    ],
)
def test_invalid_environments_are_rejected(make_it: Any, name: str) -> None:
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ValidationError, match=name):
            make_it()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_obstacles_block_and_belong_to_params() -> None:
    env = PlumeNav(obstacles=WALL)
    assert env == PlumeNav(obstacles=WALL.copy()) != PlumeNav()
    _, state, params = reset(env, start_location=(49, 64))
    obs, state, *_ = step(env, state, 1, params)
    assert state.agent.xy.tolist() == [49, 64]
    assert float(obs[0]) > 0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_episode_and_another_seed_another() -> None:
    env = PlumeNav(Meander(), max_steps=20)
    runs = [rollout(env, random_policy(env), seed, 3, 20).transitions for seed in (1, 1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, runs[:2]), strict=True))
    first, other = runs[0], runs[2]
    assert first is not None
    assert other is not None
    assert not np.array_equal(first.info["agent_xy"][0], other.info["agent_xy"][0])


def test_plain_seeds_spread_over_the_arena() -> None:
    env = PlumeNav()
    params = env.default_params()
    _, states = jax.jit(jax.vmap(lambda seed: env.reset(random.key(seed), params)))(jnp.arange(64))
    assert (states.agent.xy.std(0) > 20).all()


def test_sigma_can_be_vmapped_and_set() -> None:
    env = PlumeNav()
    params = env.configure(env.default_params(), {"start_location": (64, 84)})
    sigmas = jnp.array([5.0, 10.0, 40.0])
    many = jax.vmap(lambda sigma: eqx.tree_at(lambda p: p.field.sigma, params, sigma))(sigmas)
    axes = jax.tree.map(lambda leaf: 0, many)
    smells = jax.jit(jax.vmap(lambda p: env.reset(KEY, p)[0][0], in_axes=(axes,)))(many)
    np.testing.assert_allclose(smells, np.exp(-400 / (2 * sigmas**2)), rtol=1e-4)
    assert make("PlumeNav-v0", params={"field.sigma": 30.0})[1].field.sigma == 30
    with pytest.raises(ValidationError, match=r"field\.sgma"):
        make("PlumeNav-v0", params={"field.sgma": 30.0})


@pytest.mark.slow
def test_a_shared_plume_is_one_realisation_of_its_own_physics() -> None:
    env = PlumeNav(Meander(), start=Start(fixed=1, point=(90.0, 64.0)), max_steps=30, shared=True)
    params: Any = env.default_params()
    keys = random.split(KEY, 200)
    obs, states = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    frames = np.asarray(states.field)
    for frame in set(frames.tolist()):
        assert len(set(np.asarray(obs[frames == frame]).ravel().tolist())) == 1
    assert len(set(np.asarray(obs).ravel().tolist())) > 10
    inner = jax.tree.map(lambda stack: stack[frames], params.field.states)
    own = jax.vmap(lambda state, xy: Meander().concentration(state, xy))(inner, states.agent.xy)
    np.testing.assert_allclose(obs[:, 0], own, rtol=1e-5)
    newer, older = params.field.states.path[1:], params.field.states.path[:-1]
    np.testing.assert_array_equal(newer[:, 1:], older[:, :-1])  # the history shifts by one per step


def test_words() -> None:
    env = PlumeNav(sensor=dict_sensor(nose=Concentration(), wind=WindSense(), place=Position()))
    obs, state, params = reset(env, start_location=(10, 20))
    text = env.describe(state, obs, params)
    assert "(10, 20)" in text
    assert "nose [" in text
    assert "place [10, 20]" in text
    assert "up, right, down, left" in text
    assert env.parse("left", params) == 3
    assert int(env.parse("2", params)) == 2
    with pytest.raises(ValidationError, match="up, right"):
        env.parse("north", params)
    flight: Any = PlumeNav(motion=Continuous())
    np.testing.assert_allclose(flight.parse("[0.5, 1]", flight.default_params()), [0.5, 1])


def test_a_trail_holds_the_last_positions() -> None:
    env = PlumeNav(trail=3)
    _, state, params = reset(env, start_location=(10, 20))
    for _ in range(2):
        _, state, *_ = step(env, state, 0, params)
    assert state.trail.tolist() == [[10, 20], [10, 21], [10, 22]]
    assert jax.eval_shape(env.render, state, params).dtype == jnp.uint8


def test_double_precision() -> None:
    with jax.enable_x64(True):
        env = PlumeNav()
        obs, state, params = reset(env, start_location=(10, 20))
        after = step(env, state, 0, params)
        kinds = [jax.tree.map(lambda leaf: leaf.dtype, tree) for tree in ((obs, state), after[:2])]
        assert kinds[0] == kinds[1]
        assert obs.dtype == after[2].dtype == jnp.float32
        assert state.agent.xy.dtype == jnp.float64


def test_a_goal_of_radius_zero_is_the_source_itself():
    session = Session(PlumeNav(goal_radius=0, start=Start(fixed=1, point=(62.0, 64.0))))
    session.reset(seed=0)
    assert [session.step(1).terminated for _ in range(2)] == [False, True]


def test_an_unknown_option_is_rejected_with_the_known_ones():
    session = Session(PlumeNav())
    with pytest.raises(ValidationError, match="takes: params, source_location, start_location") as caught:
        session.reset(options={"start": (0, 0)})
    assert (caught.value.name, caught.value.value) == ("options", "start")


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"field.source": (900.0, 3.0)}, "source"),
        ({"goal_radius": -1.0}, "goal_radius"),
        ({"goal_radius": np.inf}, "goal_radius"),
        ({"max_steps": 0}, "max_steps"),
        ({"field.flow.xy": 3.0}, "xy"),
        ({"field.flow.xy": (1.0, 2.0, 3.0)}, "xy"),
    ],
)
def test_invalid_params_are_rejected_at_every_entry_point(params: Any, name: str):
    for give in (
        lambda: make("PlumeNav-v0", params=params),
        lambda: Session(PlumeNav(), params),
        lambda: Session(PlumeNav()).reset(seed=0, options={"params": params}),
    ):
        with pytest.raises(ValidationError) as caught:
            give()
        assert caught.value.name == name


def test_the_wind_is_a_param_and_is_sensed():
    env, params = make("PlumeNav-v0", params={"field.flow.xy": [1.0, -2.0]}, sensor=WindSense())
    np.testing.assert_array_equal(Session(env, params).reset(seed=0).obs, [1.0, -2.0])


@pytest.mark.slow
def test_the_wind_of_a_recording_is_an_argument():
    felt = {wind: Session(*make("PlumeNavMovie-v0", wind=wind)).reset(seed=0).obs[1:] for wind in (None, (0.5, -1.0))}
    np.testing.assert_array_equal(felt[None], [16.0, 0.0])  # of the synthetic recording
    np.testing.assert_array_equal(felt[0.5, -1.0], [0.5, -1.0])
    with pytest.raises(ValidationError, match="wind"):
        make("PlumeNavMovie-v0", wind=(0.5, np.nan))


def test_the_source_is_at_the_centre_of_any_grid():
    assert make("PlumeNav-v0", grid_size=(12, 10))[1].field.source == (6.0, 5.0)


@pytest.mark.parametrize(
    "parts",
    [
        {"field": Meander(), "motion": Continuous(dt=0.04)},
        {"field": Puffs(), "motion": Continuous(dt=0.1)},
        {"motion": Continuous(dt=0.04), "sensor": WindSense(apparent=True, dt=1.0)},
        {"field": Meander(), "sensor": dict_sensor(wind=Noisy(WindSense(apparent=True, dt=0.5)))},
    ],
)
def test_parts_with_different_clocks_are_rejected(parts: dict[str, Any]):
    arena: dict[str, Any] = {"low": (-2.0, -2.5), "high": (10.0, 2.5)} if isinstance(parts.get("field"), Puffs) else {}
    with pytest.raises(ValidationError, match="dt"):
        PlumeNav(**parts, **arena)


def test_params_with_different_clocks_are_rejected():
    env = PlumeNav(Meander(dt=0.5), motion=Continuous(dt=0.5))
    with pytest.raises(ValidationError, match="dt"):
        override(env.default_params(), {"motion.dt": 0.04})


def test_a_plume_that_its_buffer_would_cut_is_rejected():
    with pytest.raises(ValidationError, match="max_puffs"):
        PlumeNav(Puffs(flow=Constant((0.1, 0.0))), motion=Continuous(), low=(-2.0, -2.5), high=(10.0, 2.5))
    assert make("PlumeNavPuffs-v0", regime="switch_many")[0].field.max_puffs > 2300


def test_a_shared_plume_has_a_seed_and_another_one_for_evaluations():
    first, again, other = (
        PlumeNav(Meander(), motion=Continuous(dt=1.0), max_steps=20, shared=True, realisation=seed)
        for seed in (1, 1, 2)
    )
    params = first.default_params()
    fields: list[Any] = [env.default_params().field for env in (first, again, other)]
    paths = [field.states.path for field in fields]
    held_out = first.evaluation_params(params)
    assert np.array_equal(paths[0], paths[1])
    assert not np.array_equal(paths[0], paths[2])
    assert not np.array_equal(paths[0], held_out.field.states.path)
    assert PlumeNav().evaluation_params(params) is params


def test_an_episode_in_a_shared_plume_does_not_reach_its_end():
    env = PlumeNav(Meander(), motion=Continuous(dt=1.0), max_steps=20, shared=True)
    params: Any = env.default_params()
    _, states = jax.vmap(env.reset, in_axes=(0, None))(random.split(random.key(0), 200), params)
    assert int(states.field.max()) == 20
    assert params.field.num_frames == 41


def test_straying_from_the_puffs_ends_the_episode():
    env = PlumeNav(Puffs(), motion=Continuous(), low=(-9.0, -9.0), high=(10.0, 9.0), max_stray=1.0, goal_radius=0.2)
    params = env.default_params()
    with pytest.raises(ValidationError, match="a field of puffs"):
        PlumeNav(max_stray=1.0)
    for y, ended in ((0.5, False), (3.0, True)):
        here = replace(params, start=Start(fixed=1, point=(3.0, y)))
        _, state = env.reset(random.key(0), here)
        assert bool(env.step(random.key(1), state, jnp.zeros(2), here)[3]) == ended
