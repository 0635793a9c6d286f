"""Networks for source tracking, training with a teacher, and the agents that come with the package."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from tests.train.worlds import brief

from tropism import make
from tropism.errors import ValidationError
from tropism.train import checkpoint, evaluate, load
from tropism.train.belief_network import BeliefNetwork, HistoryNetwork, Symmetry, symmetries
from tropism.train.policies import AGENTS, resolve_policy
from tropism.train.run import CHECKPOINT, train

NETWORKS = [BeliefNetwork, HistoryNetwork]
TEACHER = "space-aware-infotaxis"


def make_small(**arguments: Any) -> tuple[Any, Any]:
    return make("SourceTracking-v0", **{"dims": 2, "size": 5, "num_hits": 3, "observation": "belief", **arguments})


def make_network(kind: Any, env: Any, params: Any) -> Any:
    return kind(env.observation_space(params), env.action_space(params), key=random.key(0))


def observation(shape: tuple[int, ...], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    belief = rng.random(shape).astype(np.float32)
    position = np.array([rng.integers(size) for size in shape], np.int32)
    return {"belief": jnp.asarray(belief / belief.sum()), "hits": jnp.ones(1), "position": jnp.asarray(position)}


def image_of(symmetry: Symmetry, obs: Any) -> Any:
    """The observation in a turned or reflected world."""
    size = obs["belief"].shape[0]
    belief = np.zeros(obs["belief"].shape, np.float32)

    def image(cell: Any) -> tuple[int, ...]:
        offset = np.array(cell) - (size - 1) / 2
        turned = [sign * offset[axis] for axis, sign in zip(symmetry.axes, symmetry.signs, strict=True)]
        return tuple(round(each + (size - 1) / 2) for each in turned)

    for cell in np.ndindex(belief.shape):
        belief[image(cell)] = obs["belief"][cell]
    return {**obs, "belief": jnp.asarray(belief), "position": jnp.array(image(obs["position"]), jnp.int32)}


@pytest.mark.parametrize(("dims", "count"), [(1, 2), (2, 8), (3, 48)])
def test_actions_turn_with_the_belief(dims: int, count: int):
    network = make_network(BeliefNetwork, *make_small(dims=dims, size=3))
    obs, group = observation((3,) * dims), symmetries((3,) * dims)
    outputs, value, _ = network(obs, None)
    assert len(set(group)) == count
    for symmetry in group[:: max(1, count // 8)]:
        turned, same, _ = network(image_of(symmetry, obs), None)
        original = [symmetry.original_action(action) for action in range(2 * dims)]
        np.testing.assert_allclose(turned, np.asarray(outputs)[original], rtol=1e-3, atol=1e-6)
        assert float(same) == pytest.approx(float(value), rel=1e-4)
    assert np.ptp(np.asarray(outputs)) > 1e-5


def test_a_grid_with_unequal_sides_has_no_symmetry_but_a_network():
    assert len(symmetries((5, 7))) == 1
    network = make_network(BeliefNetwork, *make("SourceTrackingWindy-v0", observation="belief"))
    assert network(observation((81, 41)), None)[0].shape == (4,)


def test_the_input_depends_only_on_the_belief_around_the_agent():
    network = make_network(BeliefNetwork, *make_small())
    belief = np.zeros((5, 5), np.float32)
    belief[1, 2] = 1
    moved = np.roll(belief, (2, 1), (0, 1))
    first = network.center(jnp.asarray(belief), jnp.array([0, 0], jnp.int32))
    second = network.center(jnp.asarray(moved), jnp.array([2, 1], jnp.int32))
    np.testing.assert_array_equal(first, second)
    assert np.argwhere(np.asarray(first)).tolist() == [[4 + 1, 4 + 2]]


def test_the_history_network_observes_hits_and_positions_but_no_belief():
    network = make_network(HistoryNetwork, *make_small())
    first, other = observation((5, 5)), observation((5, 5), 1)
    outputs, _, memory = network(first, network.memory())
    same = network({**first, "belief": other["belief"]}, network.memory())[0]
    np.testing.assert_array_equal(outputs, same)
    assert not np.array_equal(outputs, network({**first, "hits": jnp.zeros(1)}, network.memory())[0])
    assert not np.array_equal(network(first, memory)[0], outputs)


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_needs_the_belief_among_the_observations(kind: Any):
    with pytest.raises(ValidationError, match='observation="belief"'):
        make_network(kind, *make_small(observation="hits"))


@pytest.mark.parametrize(
    ("id", "observation", "teacher", "message"),
    [
        ("SourceTracking1D-v0", "belief", "infotaxi", "infotaxis"),
        ("SourceTracking1D-v0", "hits", "infotaxis", "observation=belief"),
        ("CartPole-v1", None, "infotaxis", "an environment with strategies"),
    ],
)
def test_an_unsuitable_teacher_is_rejected(id: str, observation: str | None, teacher: str, message: str):
    arguments = {} if observation is None else {"observation": observation}
    with pytest.raises(ValidationError, match=message):
        brief(id, teacher=teacher)._replace(arguments=arguments).make_algorithm()


def taught(kind: Any, **numbers: Any) -> Any:
    options: dict[str, Any] = {
        "updates": 120,
        "teacher": "greedy",
        "teacher_share": 1.0,
        "normalize": False,
        "learning_rate": 5e-3,
    }
    training = brief("SourceTracking-v0", network=kind, epochs=4, **{**options, **numbers})
    return training._replace(arguments={"dims": 1, "size": 9, "num_hits": 3, "observation": "belief"})


def agreement(folder: Path, training: Any) -> float:
    """The share of random beliefs, with clearly different neighbours, in which the agent does what the teacher does."""
    env, params = training.environment()
    agent, teacher = load(folder / CHECKPOINT, greedy=True), env.strategies(params)["greedy"]()
    seen = [observation((9,), seed) for seed in range(100)]
    acts = [jax.jit(lambda obs, policy=policy: policy.act(random.key(0), None, obs)[0]) for policy in (agent, teacher)]
    clear = [obs for obs in seen if 0 < (at := int(obs["position"][0])) < 8 and _gap(obs["belief"], at) > 0.05]
    return float(np.mean([int(acts[0](obs)) == int(acts[1](obs)) for obs in clear]))


def _gap(belief: Any, at: int) -> float:
    return abs(float(belief[at - 1] - belief[at + 1]))


@pytest.mark.slow
def test_an_agent_learns_the_actions_of_its_teacher(tmp_path: Path):
    with_teacher, without = taught(BeliefNetwork), taught(BeliefNetwork, teacher_weight=0.0, updates=1)
    for name, training in (("with", with_teacher), ("without", without)):
        train(training, tmp_path / name)
    found, untrained = agreement(tmp_path / "with", with_teacher), agreement(tmp_path / "without", without)
    assert found > 0.85
    assert found > untrained + 0.1


@pytest.mark.slow
def test_a_policy_file_has_the_policy_and_cannot_be_resumed(tmp_path: Path):
    training = taught(HistoryNetwork, updates=1)
    train(training, tmp_path)
    agent, file = load(tmp_path / CHECKPOINT, greedy=True), tmp_path / "agent.policy"
    checkpoint.save_policy(file, training, agent)
    again = load(file, greedy=True)
    jax.tree.map(np.testing.assert_array_equal, again, agent)
    assert file.stat().st_size < (tmp_path / CHECKPOINT).stat().st_size / 2
    with pytest.raises(ValidationError, match="for evaluation only"):
        checkpoint.load(file)
    with pytest.raises(ValidationError, match="one of the 1 agents"):
        load(file, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["belief-network", "history-network"])
def test_a_shipped_agent_is_small_and_found_by_its_name(name: str):
    env, params = make("SourceTracking19x19-v0", observation="belief")
    assert (AGENTS / f"{name}.tropism").stat().st_size < 300_000
    agent = resolve_policy(name, env, params, greedy=True)
    obs, _ = env.reset(random.key(0), params)
    assert int(agent.act(random.key(0), agent.init(random.key(0)), obs)[0]) in range(4)
    with pytest.raises(ValidationError, match="an agent that observes"):
        resolve_policy(name, *make("SourceTracking19x19-v0"))


@pytest.mark.slow
def test_the_belief_network_finds_the_source_as_fast_as_its_teacher():
    env, params = make("SourceTracking19x19-v0", draw_source=False, observation="belief")
    policies = resolve_policy("belief-network", env, params, greedy=True), env.strategies(params)[TEACHER]()
    network, teacher = (evaluate("", env, params, policy, 0, 500).returns for policy in policies)
    difference = network - teacher
    assert difference.mean() < 2 * difference.std() / len(difference) ** 0.5
