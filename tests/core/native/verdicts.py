"""Prints the engines that registered pure ids get, verified anew."""

import json
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from tests.ids import PURE

from tropism import make, random_policy, rollout
from tropism.core.native.batch_engine import STEPS, choose_batch_engine, verify_batch
from tropism.core.native.engine import choose_engine
from tropism.core.native.rollout_choice import choose_native
from tropism.core.rollout.plan import RolloutPlan
from tropism.core.rollout.policy import jax_key


def print_verdicts(ids: Iterable[str] = PURE) -> None:
    print(json.dumps({id: str(choose_engine(*make(id))) for id in ids}))


def print_batch_verdicts(ids: Iterable[str] = PURE, steps: int = 10_000) -> None:
    """Why a batch of each id does not run natively; empty if it does, and is equal over these steps."""
    reasons: dict[str, str] = {}
    for id in ids:
        env, params = make(id)
        native, _, reasons[id] = choose_batch_engine(env, params, "same_step")
        if native is not None and steps > STEPS:
            verdict = verify_batch(native, env, params, "same_step", steps)
            assert verdict.step, f"{id}: {verdict.reason}"
    print(json.dumps(reasons))


def print_rollout_verdicts(ids: Iterable[str]) -> None:
    """Why rollouts of each id do not run natively; empty if they do, and are equal at other seeds and sizes."""
    reasons: dict[str, str] = {}
    for id in ids:
        env, params = make(id)
        params, policy = jax.tree.map(jnp.asarray, params), random_policy(env, params)
        plan = RolloutPlan(env, policy, 160, True, None, False, "auto")
        _, reasons[id] = choose_native(plan, jax_key(0), params, True, 10**9)
        for num_envs in () if reasons[id] else (7, 300):
            results = [
                rollout(env, policy, 5, num_envs, 64, params=params, engine=engine) for engine in ("xla", "native")
            ]
            jax.tree.map(lambda x, y, id=id: _assert_same_bits(id, x, y), *results)
    print(json.dumps(reasons))


def _assert_same_bits(id: str, x: Any, y: Any) -> None:
    assert jnp.asarray(x).tobytes() == jnp.asarray(y).tobytes(), id
