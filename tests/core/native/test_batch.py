"""Native batches give the bits of XLA's, with every number of environments and threads."""

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.core.native.compiling import same_xla
from tests.core.native.test_engine import run_child
from tests.ids import PURE

from tropism import make
from tropism.core.compiled.batch import batch_program_of
from tropism.core.compiled.batch_engine import BatchEngine
from tropism.core.compiled.packing import Layout
from tropism.core.episode import seed_words
from tropism.core.native.batch import NativeBatchProgram
from tropism.core.native.batch_engine import NativeBatchEngine, choose_batch_engine, make_batch_engine, verify_batch
from tropism.core.native.lanes import LaneTable, bind_lanes
from tropism.core.native.scalarize import RULES, map_scalars
from tropism.errors import ValidationError

SHORT = {"max_steps": 11, "theta_threshold": 0.08}  # episodes end in both ways, and not all at once


def cartpoles(num_envs: int, engine: Any, mode: Any = "next_step", num_threads: int = 1) -> BatchEngine:
    env, params = make("CartPole-v1", params=SHORT)
    batch = make_batch_engine(env, params, num_envs, mode, engine, num_threads)
    assert isinstance(batch, NativeBatchEngine) == (engine == "native")
    keys, every = np.stack([seed_words(seed) for seed in range(num_envs)]), np.ones(num_envs, bool)
    batch.reset(keys, every, every)
    return batch


def step(batch: BatchEngine, seed: int) -> None:
    batch.step(batch.read_actions(np.random.default_rng(seed).integers(0, 2, batch.program.num_envs)))


def assert_same_words(one: BatchEngine, other: BatchEngine) -> None:
    np.testing.assert_array_equal(np.asarray(one.words), np.asarray(other.words))


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_batches_of_any_size_equal_lanes_of_a_larger_one(mode: Any) -> None:
    """Blocks and the vectorised loop have remainders at other lanes."""
    large, small = cartpoles(531, "native", mode), cartpoles(3, "native", mode)
    actions = np.random.default_rng(0).integers(0, 2, (40, 531))
    for row in actions:
        large.step(large.read_actions(row))
        small.step(small.read_actions(row[:3]))
    ours, theirs = (batch.program.layout.read(np.asarray(batch.words)) for batch in (large, small))
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[:3], y), ours, theirs)


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_both_engines_work_on_the_same_buffer(mode: Any) -> None:
    native, xla = cartpoles(5, "native", mode), cartpoles(5, "xla", mode)
    for number in range(30):
        step(xla, number)
    native.load(np.array(xla.words))
    mask, seeded = np.array([True, False, True, False, False]), np.array([True, True, False, False, False])
    for batch in (native, xla):
        batch.reset(np.stack([seed_words(9)] * 5), seeded, mask)
        step(batch, 0)
    ours, theirs = (batch.program.layout.read(np.asarray(batch.words)) for batch in (native, xla))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), ours, theirs)
    assert list(ours[0].episode.key[0]) == [0, 9]


def test_environments_may_have_different_params() -> None:
    native, xla = cartpoles(6, "native"), cartpoles(6, "xla")
    params = make("CartPole-v1", params=SHORT)[1]
    other = Layout(params).write(make("CartPole-v1", params={**SHORT, "gravity": 3.7, "max_steps": 3})[1])
    rows = np.stack([native.base, other, other, native.base, native.base, other])
    for batch in (native, xla):
        batch.set_rows(rows)
    for number in range(12):
        for batch in (native, xla):
            step(batch, number)
        ours, theirs = (batch.program.layout.read(np.asarray(batch.words)) for batch in (native, xla))
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), ours[1], theirs[1])
    for batch in (native, xla):
        batch.set_rows(None)
        step(batch, 0)


def test_threads_give_the_same_bits() -> None:
    one, many = cartpoles(20_000, "native"), cartpoles(20_000, "native", num_threads=3)
    for number in range(15):
        step(one, number)
        step(many, number)
    assert_same_words(one, many)


@pytest.mark.parametrize(
    ("lanes", "threads"), [(range(20_000), 3), (range(7, 5000), 2), (range(300), 8), (range(1), 4)]
)
def test_each_lane_runs_once(lanes: range, threads: int) -> None:
    parts: list[range] = []

    def loop(address: Any, first: Any, end: Any, steps: Any) -> None:
        assert steps.value == 5
        parts.append(range(first.value, end.value))

    bind_lanes(loop, LaneTable(1), lanes, 5, 1000, threads)()
    assert sorted(lane for part in parts for lane in part) == list(lanes)
    assert len(parts) <= threads
    assert len(parts) > 1 or len(lanes) <= 300


@pytest.mark.parametrize(
    "id", ["CartPole-v1", "GridWorld-v0", *(pytest.param(id, marks=pytest.mark.full) for id in PURE)]
)
def test_auto_equals_xla(id: str) -> None:
    env, params = make(id)
    auto, xla = (make_batch_engine(env, params, 130, "same_step", engine) for engine in ("auto", "xla"))
    keys, every = np.stack([seed_words(seed) for seed in range(130)]), np.ones(130, bool)
    sample = jax.tree.map(np.asarray, env.action_space(params).sample(jax.random.key(1), (20, 130)))
    for batch in (auto, xla):
        batch.reset(keys, every, every)
    for number in range(20):
        for batch in (auto, xla):
            batch.step(batch.read_actions(jax.tree.map(itemgetter(number), sample)))
        assert_same_words(auto, xla)


@same_xla
def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is wrong by one bit, for some angles."""
    env, params = make("CartPole-v1")
    program = batch_program_of(env, Layout(params), 160, "same_step")
    right = NativeBatchProgram(program, env.action_space(params))
    assert verify_batch(right, env, params, "same_step", 60).step

    def wrong(b: Any, equation: Any, x: Any) -> list[Any]:
        float32, int32 = np.dtype(np.float32), np.dtype(np.int32)

        def of(item: Any) -> Any:
            bits = b.bitcast(b.op("cos", float32, item), float32, int32)
            odd = b.convert(b.compare("gt", float32, item, b.constant(0.1, float32)), np.dtype(bool), int32)
            return b.bitcast(b.op("xor", int32, bits, odd), int32, float32)

        return [map_scalars(of, x)]

    monkeypatch.setitem(RULES, "cos", wrong)
    planted = NativeBatchProgram(program, env.action_space(params))
    verdict = verify_batch(planted, env, params, "same_step")
    assert not verdict.step
    assert "of a batch" in verdict.reason
    assert planted.digest != right.digest


def test_wrong_arguments_are_named() -> None:
    env, params = make("CartPole-v1")
    with pytest.raises(ValidationError, match="num_threads"):
        make_batch_engine(env, params, 2, "next_step", "native", 0)
    with pytest.raises(ValidationError, match="one of auto, native, xla"):
        make_batch_engine(env, params, 2, "next_step", "gpu")  # pyright: ignore[reportArgumentType]
    puffs, params = make("PlumeNavPuffs-v0")
    assert choose_batch_engine(puffs, params, "next_step")[0] is None
    with pytest.raises(ValidationError, match="PlumeNav has no native engine: "):
        make_batch_engine(puffs, params, 2, "next_step", "native")


@pytest.mark.parametrize(
    ("ids", "steps"),
    [
        pytest.param(["CartPole-v1", "PlumeNav-v0", "PlumeNavMovie-v0"], 0, marks=pytest.mark.slow),
        pytest.param(PURE, 10_000, marks=pytest.mark.full),
    ],
)
def test_batches_are_native(ids: list[str], steps: int, tmp_path: Path) -> None:
    """With XLA's bits; at least these are, on x86 with fused multiply-adds."""
    script = f"from tests.core.native.verdicts import print_batch_verdicts; print_batch_verdicts({ids}, {steps})"
    reasons = json.loads(run_child("-c", script, TROPISM_CACHE=str(tmp_path), JAX_COMPILATION_CACHE_DIR=""))
    assert set(reasons) == set(ids)
    classics = {"CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "GridWorld-v0"}
    required = classics | {"ConnectFour-v0", "PlumeNav-v0", "PlumeNavMovie-v0"}
    assert {id: reasons[id] for id in ids if id in required and reasons[id]} == {}
