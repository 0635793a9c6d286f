"""Estimates of cost decide how environments are reset and mapped; results do not depend on them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

from tropism import make, random_policy, rollout
from tropism.core.compiled import reset_where as module
from tropism.core.compiled.cost import HASH, estimate
from tropism.core.compiled.reset_where import reset_where
from tropism.core.rollout import scan


def test_loops_multiply_operations_and_reuse_memory() -> None:
    def step(x: Any) -> Any:
        return jnp.sin(x) + 1

    once = estimate(step, jnp.zeros(10))
    assert once == (20, 80)
    assert estimate(lambda x: lax.fori_loop(0, 50, lambda _, x: step(x), x), jnp.zeros(10)).operations >= 50 * 20
    assert estimate(lambda x: lax.fori_loop(0, 50, lambda _, x: step(x), x), jnp.zeros(10)).bytes < 2 * once.bytes
    assert estimate(lambda key: random.bits(key, (3,)), random.key(0)).operations == 3 * HASH


def make_new(source: Any) -> Any:
    return random.uniform(source, (2,))


def test_heavy_replacements_are_computed_for_finished_members_only(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, done = random.split(random.key(0), 20), jnp.arange(20) % 3 == 0
    value = jnp.zeros((20, 2))

    def run(restarts: Any) -> Any:
        return jax.vmap(lambda done, key, value: reset_where(make_new, done, key, value, restarts))(done, keys, value)

    assert "while" not in str(jax.make_jaxpr(lambda: run("auto"))())
    expected = run("select")
    monkeypatch.setattr(module, "LOOP_OPERATIONS", 19 * 2 * HASH)
    assert "while" in str(jax.make_jaxpr(lambda: run("auto"))())
    np.testing.assert_array_equal(run("auto"), expected)


def test_environments_are_mapped_in_chunks_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    env, params = make("CartPole-v1")

    def run(steps: int) -> Any:
        return rollout(env, random_policy(env), 3, 50, steps, params=params, engine="xla")

    expected = run(30)
    monkeypatch.setattr(scan, "MAX_BYTES", 8_000)  # 14 environments
    jax.clear_caches()
    chunked = run(30)
    jax.tree.map(np.testing.assert_array_equal, chunked.transitions, expected.transitions)
    assert "scan" in str(jax.make_jaxpr(lambda: scan._map_lanes(make_new, random.split(random.key(0), 999)))())  # pyright: ignore[reportPrivateUsage]
