"""Environments are values: equal by their fields, and their params are overridden by name."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.lines import HostLine, Line, LineParams

from tropism.core.adapters.language import Language
from tropism.core.compiled.program import program_of
from tropism.core.environment import flags, outcome
from tropism.core.host import Host
from tropism.core.params import EnvParams, override
from tropism.core.session.session import Session
from tropism.core.spaces import Box
from tropism.envs.cartpole import CartPole, CartPoleParams
from tropism.envs.grid_world import GridWorld
from tropism.errors import ValidationError


def test_environments_are_equal_and_hash_by_value():
    assert GridWorld(4) == GridWorld(4) != GridWorld(5)
    assert hash(GridWorld(4)) == hash(GridWorld(4))
    assert CartPole() != GridWorld()
    several: list[Any] = [CartPole(), CartPole(), GridWorld(4), GridWorld(4), GridWorld(5)]
    assert len(set(several)) == 3


def test_equal_environments_share_one_compilation():
    traced: list[None] = []

    class Counted(Line):
        def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
            traced.append(None)
            return super().step(key, state, action, params)

    for stride in (1.0, 2.0):
        session = Session(Counted(), {"stride": stride}, engine="xla")
        session.reset(seed=0)
        session.step(1)
        session.step(2)
    # One trace for the shapes and one for the compilation.
    assert len(traced) == 2
    assert program_of(Counted(), LineParams()) is program_of(Counted(), LineParams(stride=3.0))


def test_params_can_be_vmapped_without_recompiling():
    env, traced = CartPole(), list[None]()

    @jax.jit
    @jax.vmap
    def force(params: Any) -> Any:
        traced.append(None)
        _, state = env.reset(jax.random.key(0), params)
        return env.step(jax.random.key(1), state, 1, params)[1].theta_dot

    for start in (5.0, 15.0):
        force(CartPoleParams(**{**vars(CartPoleParams()), "gravity": jnp.linspace(start, 20, 1000)} | _full(1000)))
    assert len(traced) == 1


def _full(size: int) -> dict[str, Any]:
    rest = {name: jnp.full(size, value) for name, value in vars(CartPoleParams()).items() if name != "gravity"}
    return rest | {"masspole": jnp.linspace(0.05, 1, size)}


def test_override_replaces_by_name():
    params = override(CartPoleParams(), {"gravity": 3.7, "max_steps": np.int64(9)})
    assert (params.gravity, params.max_steps, params.masspole) == (3.7, 9, 0.1)
    assert override(params, CartPoleParams()).gravity == 9.8
    assert override(params, {}) == params


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"gravty": 1.0}, "'gravty'; expected a field of CartPoleParams: gravity,"),
        ({"gravity": "high"}, r"params\['gravity'\] is 'high'; expected a number"),
        ({"gravity": float("nan")}, "not NaN"),
        ({"gravity": None}, "a number like 9.8"),
        ({"gravity": True}, "a number like 9.8"),
        ({"max_steps": 2.5}, "an integer like 500"),
        ("gravity=1", "a dict of numbers or CartPoleParams"),
        (LineParams(), "a dict of numbers or CartPoleParams"),
        (3, "a dict of numbers"),
    ],
)
def test_override_rejects_invalid_values(values: Any, match: str):
    with pytest.raises(ValidationError, match=match):
        override(CartPoleParams(), values)


def test_override_accepts_tracers():
    assert float(jax.jit(lambda g: override(CartPoleParams(), {"gravity": g}).gravity)(2.0)) == 2.0


def test_a_static_field_is_not_a_leaf():
    class Mixed(EnvParams):
        name: str = eqx.field(static=True, default="calm")
        wind: float = 1.0

    assert jax.tree.leaves(Mixed()) == [1.0]
    assert override(Mixed(), {"name": "storm"}).name == "storm"


def test_outcome_and_flags_agree():
    done, info = outcome(jnp.bool_(False), jnp.bool_(True), {"score": 3})
    assert bool(done)
    assert [bool(flag) for flag in flags(done, info)] == [False, True]
    assert info["score"] == 3


@pytest.mark.parametrize("done", [True, False, np.bool_(True), jnp.bool_(True)])
def test_without_flags_done_means_terminated(done: Any):
    terminated, truncated = flags(done, {})
    assert bool(terminated) == bool(done)
    assert not bool(truncated)


def test_the_defaults_of_an_environment():
    env, params = Line(), LineParams()
    obs, state = env.reset(jax.random.key(0), params)
    assert env.info(state, params) == {}
    assert env.describe(state, obs, params).startswith("Observation: [")
    assert env.parse("2", params) == 2
    with pytest.raises(ValidationError, match="Discrete"):
        env.parse("7", params)
    with pytest.raises(ValidationError, match="'speed'; expected a known option"):
        env.configure(params, {"speed": 3})
    assert env.configure(params, {"params": {"stride": 2.0}}).stride == 2.0
    again = env.restart(jax.random.key(0), state, params)
    assert again[0] == obs
    assert isinstance(env.observation_space(params), Box)


def test_a_host_environment_is_blocking_by_default():
    class Quick(HostLine):
        host = Host(blocking=False)

    assert [env.pure for env in (Line(), HostLine(), Quick())] == [True, False, False]
    assert [env.traits.blocking for env in (Line(), HostLine(), Quick())] == [False, True, False]


def test_an_environment_has_no_names_or_message_types_by_default():
    assert Line().language == Language()


@pytest.mark.parametrize(
    ("obs", "words"),
    [
        (np.zeros((84, 96, 3), np.uint8), "Observation: an image of 96 x 84 pixels"),
        (
            {"eye": np.zeros((84, 96, 3), np.uint8), "speed": np.float32(0.5)},
            "Observation: eye: an image of 96 x 84 pixels, speed: 0.5",
        ),
        (np.zeros((2, 1, 1), np.uint8), "Observation: [[[0]]\n\n [[0]]]"),
        (np.array([1.5, 2.0]), "Observation: [1.5 2. ]"),
    ],
)
def test_a_large_image_is_described_by_its_size(obs: Any, words: str):
    assert Line().describe(None, obs, LineParams()) == words
