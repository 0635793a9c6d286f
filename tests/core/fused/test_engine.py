"""Fused rollouts equal those compiled by XLA to rounding, here with the kernel interpreted on the CPU."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.lines import Line
from tests.ids import PURE, mark_slow

from tropism import make, random_policy, rollout
from tropism.core.fused import choice
from tropism.core.fused.choice import compare
from tropism.core.fused.engine import run_fused
from tropism.core.native import verdicts
from tropism.core.native.scalarize import RULES, map_scalars
from tropism.core.rollout.choice import choose_run
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.policy import jax_key
from tropism.core.rollout.scan import run_steps
from tropism.core.spaces import MultiDiscrete
from tropism.errors import ValidationError

# The others take too many operations, or index arrays that are too large.
NOT_FUSED = {"ConnectFour-v0", "PlumeNavMeander-v0", "PlumeNavPuffs-v0", "PlumeNavFilaments-v0"}
UNTRIED = {"PixelGridWorld-v0", "PlumeNavSingh-v0", *(id for id in PURE if id.startswith("SourceTracking"))}


def plan_of(id: str, num_envs: int = 5) -> tuple[RolloutPlan, Any]:
    env, params = make(id)
    params = jax.tree.map(jnp.asarray, params)
    return RolloutPlan(env, random_policy(env, params), num_envs, False, None, False, "auto"), params


def assert_close(x: Any, y: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, 1e-4, 1e-4), x, y)


@pytest.mark.parametrize(
    "id",
    [
        pytest.param(id, marks=pytest.mark.slow if id in ("CartPole-v1", "PlumeNav-v0") else pytest.mark.full)
        for id in PURE
        if id not in NOT_FUSED | UNTRIED
    ],
)
def test_over_ten_thousand_steps_it_equals_xla(id: str) -> None:
    assert choice.NUM_ENVS * choice.LENGTH * choice.PARTS > 10_000
    assert compare(*plan_of(id)) == ""


@pytest.mark.parametrize("id", mark_slow(sorted(NOT_FUSED), {"PlumeNavFilaments-v0"}))
def test_what_cannot_be_fused_names_the_reason(id: str) -> None:
    env, params = make(id)
    with pytest.raises(ValidationError, match=r"this rollout cannot be fused: .*more than"):
        rollout(env, random_policy(env, params), 0, 4, 4, params=params, collect=False, engine="fused")


class Drift(eqx.Module):
    """Counts the steps of an episode, and pushes the other way at every third, from a number drawn at its start."""

    period: Any

    def init(self, key: Any) -> Any:
        return jax.random.randint(key, (), 0, 3)

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        flip = jax.random.bernoulli(key, 0.1)
        return ((memory % self.period == 0) ^ (obs[2] > 0) ^ flip).astype(jnp.int32), memory + 1


@pytest.mark.parametrize("reproducible", [False, True])
def test_a_policy_with_memory_and_segments(reproducible: bool) -> None:
    """40 environments are more than one block, and no multiple of it."""
    env, params = make("CartPole-v1")
    options: Any = {"params": params, "collect": False, "reproducible": reproducible}
    policy = Drift(jnp.int32(3))
    expected = rollout(env, policy, 7, 40, 40, engine="xla", **options)
    found = rollout(env, policy, 7, 40, 40, engine="fused", progress=lambda *_: None, **options)
    assert_close(found.episodes, expected.episodes)
    assert int(found.episodes.episodes) > 20


def test_sums_for_each_environment_and_over_all() -> None:
    env, params = make("CartPole-v1")

    def sums(step: Any) -> Any:
        ends = step.terminated | step.truncated
        return {"obs": step.next_obs, "ends": ends.sum(), "any": ends.any(), "action": step.action}

    results = [
        rollout(env, random_policy(env), 1, 5, 30, params=params, collect=False, reduce=sums, engine=engine).totals
        for engine in ("xla", "fused")
    ]
    assert_close(*results)
    assert results[1]["obs"].shape == (5, 4)
    assert results[1]["ends"] > 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"reduce": lambda step: step.reward.mean()}, "reduce: it combines environments"),
        ({"reduce": lambda step: step.reward - step.reward.max()}, "reduce: it combines environments"),
        ({"collect": True}, "rollout: it collects transitions"),
        ({"key": jax.random.key(0, impl="rbg")}, "key: keys that are not threefry2x32"),
    ],
)
def test_a_rollout_that_cannot_be_fused_names_the_reason(options: Any, reason: str) -> None:
    arguments: dict[str, Any] = {"key": 0, "collect": False, "engine": "fused", **options}
    with pytest.raises(ValidationError, match=reason):
        rollout(Line(), random_policy(Line()), num_envs=4, num_steps=3, **arguments)


def test_an_unknown_engine_is_rejected() -> None:
    with pytest.raises(ValidationError, match="one of auto, "):
        rollout(Line(), random_policy(Line()), 0, 4, 3, engine="gpu")


def test_auto_takes_the_kernel_on_a_gpu_if_it_is_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    plan, params = plan_of("CartPole-v1")
    key, compared = jax_key(0), list[Any]()
    monkeypatch.setenv("TROPISM_CACHE", str(tmp_path))
    assert choose_run(plan, key, params, "auto", 9) is run_steps  # a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for difference, expected in (("", run_fused), ("3 differ", run_steps)):
        monkeypatch.setattr(choice, "_reasons", {})
        monkeypatch.setattr(verdicts, "_verdicts", {})
        monkeypatch.setenv("TROPISM_CACHE", str(tmp_path / difference))
        monkeypatch.setattr(choice, "compare", lambda *_, difference=difference: compared.append(1) or difference)
        assert choose_run(plan, key, params, "auto", 9) is expected
        monkeypatch.setattr(choice, "_reasons", {})  # the verdict is on disk
        monkeypatch.setattr(verdicts, "_verdicts", {})
        assert choose_run(replace(plan, num_envs=9), key, params, "auto", 9) is expected
    assert len(compared) == 2
    assert jax.jit(lambda key: jnp.float32(choose_run(plan, key, params, "auto", 9) is run_steps))(key) == 1


def test_a_kernel_that_does_not_compile_falls_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def fail(*_: Any) -> str:
        raise RuntimeError("no registers")

    plan, params = plan_of("CartPole-v1", 3)
    monkeypatch.setenv("TROPISM_CACHE", str(tmp_path))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(choice, "compare", fail)
    monkeypatch.setattr(choice, "_reasons", {})
    monkeypatch.setattr(verdicts, "_verdicts", {})
    assert choose_run(plan, jax_key(0), params, "auto", 9) is run_steps
    assert not list(tmp_path.rglob("*.json"))


class TwoSwitches(Line):
    """The line, moved by the second of two switches."""

    def action_space(self, params: Any) -> MultiDiscrete:
        return MultiDiscrete([3, 2])

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step(key, state, action[1], params)


def test_inside_a_compiled_function() -> None:
    def run(key: Any, engine: Any) -> Any:
        def reduce(step: Any) -> Any:
            return step.action, step.reward

        return rollout(Line(), random_policy(Line()), key, 7, 9, collect=False, reduce=reduce, engine=engine).totals

    assert_close(jax.jit(lambda key: run(key, "fused"))(jax_key(4)), run(jax_key(4), "xla"))


def test_random_actions_of_several_numbers_are_not_fused() -> None:
    """Their bounds have 64 bits."""
    env = TwoSwitches()
    with pytest.raises(ValidationError, match="int64 is not fused"):
        rollout(env, random_policy(env), 0, 7, 9, collect=False, engine="fused")


@pytest.mark.slow
def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(b: Any, equation: Any, x: Any) -> list[Any]:
        del equation
        float32 = np.dtype(np.float32)
        factor = b.constant(1.001, float32)
        return [map_scalars(lambda item: b.op("mul", float32, b.op("sin", float32, item), factor), x)]

    monkeypatch.setitem(RULES, "sin", wrong)
    monkeypatch.setattr(choice, "NUM_ENVS", 96)  # another program than that of other tests
    assert "differ from XLA's" in compare(*plan_of("Pendulum-v1"))
