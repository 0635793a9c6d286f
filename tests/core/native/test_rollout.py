"""Native rollouts give the bits of XLA's, or `auto` stays on XLA."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.core.lines import Line
from tests.core.native.test_engine import run_child
from tests.ids import PURE

from tropism import make, random_policy, rollout
from tropism.core.native import jit, rollout_choice
from tropism.core.native.rollout import NativeRolloutProgram
from tropism.core.native.rollout_choice import verify_rollout
from tropism.core.native.scalarize import RULES, map_scalars
from tropism.core.rollout.choice import choose_run
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.policy import as_policy, jax_key
from tropism.core.rollout.scan import run_steps
from tropism.errors import ValidationError

LONG = 10**9  # steps


class Drift(eqx.Module):
    """Follows a list of pushes from a place drawn at the start of an episode, and sometimes pushes the other way."""

    pushes: Any

    def init(self, key: Any) -> Any:
        return jax.random.randint(key, (), 0, 3)

    def act(self, key: Any, memory: Any, obs: Any) -> tuple[Any, Any]:
        flip = jax.random.bernoulli(key, 0.1) ^ (obs[2] > 0)
        return self.pushes[memory % 5] ^ flip, memory + 1


def plan_of(id: str, num_envs: int = 160) -> tuple[RolloutPlan, Any]:
    env, params = make(id)
    params = jax.tree.map(jnp.asarray, params)
    return RolloutPlan(env, random_policy(env, params), num_envs, False, None, False, "auto"), params


def assert_close(x: Any, y: Any) -> None:
    """The settings of the tests change XLA's last bits."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, 1e-4, 1e-4), x, y)


@pytest.mark.parametrize("reproducible", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_policy_with_memory_and_segments(reproducible: bool) -> None:
    env, params = make("CartPole-v1")
    options: Any = {"params": params, "reproducible": reproducible}
    policy = Drift(jnp.array([0, 0, 1, 1, 0]))
    expected = rollout(env, policy, 7, 40, 40, engine="xla", **options)
    found = rollout(env, policy, 7, 40, 40, engine="native", progress=lambda *_: None, **options)
    assert_close(found, expected)
    assert int(found.episodes.episodes) > 20


def test_sums_for_each_environment_and_over_all() -> None:
    env, params = make("CartPole-v1")

    def sums(step: Any) -> Any:
        ends = step.terminated | step.truncated
        return {"obs": step.next_obs, "ends": ends.sum(), "any": ends.any(), "action": step.action, "first": step.obs}

    options: Any = {"params": params, "collect": False, "reduce": sums}
    expected = rollout(env, random_policy(env), 1, 300, 30, engine="xla", **options).totals
    found = rollout(env, random_policy(env), 1, 300, 30, engine="native", **options).totals
    assert_close(found, expected)
    assert found["obs"].shape == (300, 4)
    assert found["ends"] > 0


def test_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    env, results = make("CartPole-v1")[0], list[Any]()
    for threads in (1, 3):
        monkeypatch.setattr("tropism.core.native.rollout.check_threads", lambda _, threads=threads: threads)
        results.append(rollout(env, random_policy(env), 1, 2_000, 50, engine="native"))
    jax.tree.map(np.testing.assert_array_equal, *results)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"reduce": lambda step: step.reward.mean()}, "reduce: it combines environments"),
        ({"reduce": lambda step: step.reward.sum()}, "reduce: it sums floats over environments"),
        ({"policy": lambda obs: (obs[None] @ jnp.ones((1, 3))).argmax()}, "a policy with a network runs on XLA"),
        ({"key": jax.random.key(0, impl="rbg")}, "key: keys that are not threefry2x32"),
        ({"key": jax.random.PRNGKey(0)}, "key: keys that are not threefry2x32"),
    ],
)
def test_a_rollout_that_cannot_run_natively_names_the_reason(options: Any, reason: str) -> None:
    arguments: dict[str, Any] = {"policy": random_policy(Line()), "key": 0, "collect": False, **options}
    with pytest.raises(ValidationError, match=f"this rollout cannot run natively: .*{reason}"):
        rollout(Line(), num_envs=4, num_steps=3, engine="native", **arguments)


@pytest.mark.slow
def test_large_environments_stay_on_xla() -> None:
    plan, params = plan_of("PlumeNavFilaments-v0", 4)
    assert choose_run(plan, jax_key(0), params, "auto", LONG) is run_steps
    plan, params = plan_of("PixelGridWorld-v0", 4)
    with pytest.raises(ValidationError, match=r"cannot run natively: program: .*instructions are more than"):
        choose_run(replace(plan, collect=True), jax_key(0), params, "native", 1)
    assert choose_run(plan, jax_key(0), params, "native", 1) is not run_steps


def test_inside_a_compiled_function_it_stays_on_xla() -> None:
    plan, params = plan_of("CartPole-v1")
    assert jax.jit(lambda key: jnp.float32(choose_run(plan, key, params, "auto", LONG) is run_steps))(jax_key(0)) == 1
    assert jax.jit(lambda: jnp.float32(choose_run(plan, jax_key(0), params, "auto", LONG) is run_steps))() == 1
    with pytest.raises(ValidationError, match="part of another compiled function"):
        jax.jit(lambda key: choose_run(plan, key, params, "native", 1) and key)(jax_key(0))


def test_a_policy_that_is_differentiated_stays_on_xla() -> None:
    def is_on_xla(weight: Any) -> Any:
        plan = RolloutPlan(
            Line(), as_policy(lambda obs: (obs[0] * weight).astype(jnp.int32)), 4, False, None, False, "auto"
        )
        return weight * (choose_run(plan, jax_key(0), Line().default_params(), "auto", LONG) is run_steps)

    assert jax.grad(is_on_xla)(2.0) == 1


def test_an_error_of_the_policy_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    plan, params = plan_of("CartPole-v1", 3)
    with pytest.raises(ZeroDivisionError):
        choose_run(replace(plan, policy=as_policy(lambda obs: 1 // 0)), jax_key(0), params, "auto", LONG)
    assert not caplog.records


def test_with_64_bit_types_or_without_llvmlite_it_stays_on_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, params = plan_of("CartPole-v1", 3)
    with jax.enable_x64(True):
        assert choose_run(plan, jax_key(0), params, "auto", LONG) is run_steps
        with pytest.raises(ValidationError, match="with 64-bit types"):
            choose_run(plan, jax_key(0), params, "native", 1)
    monkeypatch.setattr(jit, "llvm", None)
    with pytest.raises(ValidationError, match="llvmlite is not installed"):
        choose_run(plan, jax_key(0), params, "native", 1)


def test_auto_runs_long_rollouts_natively_if_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The verdict of one number of environments holds for all large ones."""
    plan, params = plan_of("GridWorld-v0")
    key = jax_key(0)
    monkeypatch.setenv("TROPISM_CACHE", str(tmp_path))
    monkeypatch.setattr(rollout_choice, "_programs", {})
    monkeypatch.setattr(rollout_choice, "_steps", {})
    assert choose_run(plan, key, params, "auto", 10) is run_steps
    run: Any = choose_run(plan, key, params, "auto", LONG)
    assert run is not run_steps
    assert choose_run(replace(plan, num_envs=1024), key, params, "auto", 10) == run  # compiled already
    assert len(list(tmp_path.rglob("*.json"))) == 1
    assert choose_run(replace(plan, num_envs=3), key, params, "auto", 10) is run_steps


@pytest.mark.slow
def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is wrong by one bit, for some angles."""
    plan, params = plan_of("CartPole-v1")
    monkeypatch.setenv("TROPISM_CACHE", str(tmp_path))
    monkeypatch.setattr(rollout_choice, "_programs", {})
    monkeypatch.setattr(rollout_choice, "STEPS", 60)
    right = NativeRolloutProgram(plan, jax_key(0), params)
    assert verify_rollout(right, plan, params).step

    def wrong(b: Any, equation: Any, x: Any) -> list[Any]:
        del equation
        float32, int32 = np.dtype(np.float32), np.dtype(np.int32)

        def of(item: Any) -> Any:
            bits = b.bitcast(b.op("cos", float32, item), float32, int32)
            odd = b.convert(b.compare("gt", float32, item, b.constant(0.1, float32)), np.dtype(bool), int32)
            return b.bitcast(b.op("xor", int32, bits, odd), int32, float32)

        return [map_scalars(of, x)]

    monkeypatch.setitem(RULES, "cos", wrong)
    planted = NativeRolloutProgram(plan, jax_key(0), params)
    assert planted.digest != right.digest
    assert "of 160 environments" in verify_rollout(planted, plan, params).reason
    assert choose_run(plan, jax_key(0), params, "auto", LONG) is run_steps


def native_ids(ids: list[str], cache: Path) -> set[str]:
    """The ids that `auto` runs natively; the child compares them with XLA, at other seeds and sizes."""
    script = f"from tests.core.native.verdicts import print_rollout_verdicts; print_rollout_verdicts({ids})"
    reasons = json.loads(run_child("-c", script, TROPISM_CACHE=str(cache)))
    assert set(reasons) == set(ids)
    return {id for id, reason in reasons.items() if not reason}


@pytest.mark.slow
def test_transitions_have_the_bits_of_xla(tmp_path: Path) -> None:
    assert native_ids(["CartPole-v1"], tmp_path) == {"CartPole-v1"}


@pytest.mark.full
def test_every_id_that_runs_natively_has_the_bits_of_xla(tmp_path: Path) -> None:
    natives = {"CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "GridWorld-v0"}
    assert native_ids(PURE, tmp_path) >= natives
