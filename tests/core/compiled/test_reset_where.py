"""reset_where: replacements are computed and used only for the finished members."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from tests.core.lines import Line

from tropism.core.compiled.reset_where import Restarts, reset_where
from tropism.core.rollout.api import rollout
from tropism.core.transforms import auto_reset
from tropism.errors import ValidationError

SIZE = 13


def make_new(source: Any) -> Any:
    key, shift = source
    # No operations whose fusion could change the rounding.
    return {"x": random.uniform(key, (2,)) + shift, "n": jnp.int32(-1)}


KEYS = random.split(random.key(0), SIZE)
SHIFT = jnp.float32(3)
VALUE = {"x": jnp.arange(2.0 * SIZE).reshape(SIZE, 2), "n": jnp.arange(SIZE)}


@cache
def compiled(restarts: Restarts, chunk: int | None) -> Any:
    def one(done: Any, key: Any, value: Any) -> Any:
        return reset_where(make_new, done, (key, SHIFT), value, restarts, chunk)

    return jax.jit(jax.vmap(one))


def run_batch(restarts: Restarts, done: Any, chunk: int | None = None) -> Any:
    return compiled(restarts, chunk)(done, KEYS, VALUE)


def assert_equal(actual: Any, expected: Any):
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def test_without_vmap_it_is_a_conditional():
    value = jax.tree.map(lambda leaf: leaf[0], VALUE)
    for restarts in ("auto", "finished", "select"):
        kept = reset_where(make_new, jnp.bool_(False), (KEYS[0], SHIFT), value, restarts)
        assert_equal(kept, value)
        assert_equal(
            reset_where(make_new, jnp.bool_(True), (KEYS[0], SHIFT), value, restarts), make_new((KEYS[0], SHIFT))
        )


def test_a_plain_call_replaces_only_finished_values():
    made: list[Any] = []
    value = reset_where(lambda source: made.append(source), jnp.bool_(False), KEYS[0], VALUE)
    assert (value, made) == (VALUE, [])


def test_select_equals_where():
    done = jnp.arange(SIZE) % 3 == 0
    result = run_batch("select", done)
    for i in range(SIZE):
        expected = make_new((KEYS[i], SHIFT)) if done[i] else jax.tree.map(lambda leaf, i=i: leaf[i], VALUE)
        assert_equal(jax.tree.map(lambda leaf, i=i: leaf[i], result), expected)


@given(st.lists(st.booleans(), min_size=SIZE, max_size=SIZE), st.sampled_from([1, 2, 5, SIZE, 64, None]))
@settings(max_examples=30)
def test_gathering_equals_selecting_for_any_pattern_and_chunk(done: list[bool], chunk: int | None):
    assert_equal(run_batch("finished", jnp.array(done), chunk), run_batch("select", jnp.array(done)))


@pytest.mark.parametrize("size", [127, 128, 300])
def test_auto_equals_select_on_either_side_of_its_threshold(size: int):
    keys = random.split(random.key(1), size)
    value = {"x": jnp.zeros((size, 2)), "n": jnp.zeros(size, jnp.int32)}
    done = random.bernoulli(random.key(2), 0.3, (size,))

    def run(restarts: Restarts) -> Any:
        return jax.jit(jax.vmap(lambda d, k, v: reset_where(make_new, d, (k, SHIFT), v, restarts)))(done, keys, value)

    assert_equal(run("auto"), run("select"))


@pytest.mark.parametrize("batched", ["done", "source", "value"])
def test_any_argument_may_be_unbatched(batched: str):
    axes = {"done": 0 if batched == "done" else None, "source": 0 if batched == "source" else None}
    axes["value"] = 0 if batched == "value" else None
    done = jnp.arange(SIZE) % 2 == 0 if batched == "done" else jnp.bool_(True)
    key = KEYS if batched == "source" else KEYS[0]
    value = VALUE if batched == "value" else jax.tree.map(lambda leaf: leaf[0], VALUE)

    def run(restarts: Restarts) -> Any:
        one = lambda d, k, v: reset_where(make_new, d, (k, SHIFT), v, restarts)  # noqa: E731
        return jax.vmap(one, (axes["done"], axes["source"], axes["value"]))(done, key, value)

    assert_equal(run("finished"), run("select"))


def test_nested_vmap_and_scan():
    done = random.bernoulli(random.key(3), 0.4, (4, SIZE))
    value = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), VALUE)
    keys = jax.vmap(lambda key: random.split(key, SIZE))(random.split(random.key(4), 4))

    def run(restarts: Restarts) -> Any:
        step = jax.vmap(lambda d, k, v: reset_where(make_new, d, (k, SHIFT), v, restarts, 3))
        nested = jax.jit(jax.vmap(step))(done, keys, value)
        scanned = jax.jit(lambda: jax.lax.scan(lambda v, xs: (step(*xs, v), None), VALUE, (done, keys))[0])()
        return nested, scanned

    assert_equal(run("finished"), run("select"))


@pytest.mark.slow
@pytest.mark.parametrize(("finished", "calls"), [(0, 0), (1, 1), (4, 1), (5, 2), (13, 4)])
def test_the_number_of_computed_chunks_follows_the_finished_members(finished: int, calls: int):
    seen: list[int] = []

    def counted(source: Any) -> Any:
        key, shift = source
        jax.debug.callback(lambda _: seen.append(1), shift, ordered=False)
        return make_new((key, shift))

    done = jnp.arange(SIZE) < finished
    one = lambda d, k, v: reset_where(counted, d, (k, SHIFT), v, "finished", 4)  # noqa: E731
    jax.block_until_ready(jax.jit(jax.vmap(one))(done, KEYS, VALUE))
    jax.effects_barrier()
    assert len(seen) == calls


@pytest.mark.parametrize("restarts", ["sometimes", None, 3, True])
@pytest.mark.usefixtures("untyped")
def test_an_unknown_mode_is_rejected(restarts: Any):
    with pytest.raises(ValidationError, match="auto, finished, select"):
        auto_reset(Line(), restarts=restarts)
    with pytest.raises(ValidationError, match="auto, finished, select"):
        rollout(Line(), lambda key, state, obs: (obs, state), 0, 1, 1, restarts=restarts)


@pytest.mark.parametrize("restarts", ["auto", "finished"])
@pytest.mark.parametrize("mapped", [False, True])
def test_derivatives_are_those_of_a_select(restarts: Restarts, mapped: bool):
    done = jnp.arange(SIZE) % 3 == 0

    def total(restarts: Restarts, shift: Any) -> Any:
        def one(done: Any, key: Any, value: Any) -> Any:
            return (reset_where(make_new, done, (key, shift), value, restarts, 4)["x"] * shift).sum()

        inputs = done, KEYS, VALUE
        return jax.vmap(one)(*inputs).sum() if mapped else one(*jax.tree.map(lambda leaf: leaf[0], inputs))

    derivative = {each: jax.jit(jax.grad(partial(total, each)))(SHIFT) for each in (restarts, "select")}
    assert derivative[restarts] == derivative["select"] != 0
