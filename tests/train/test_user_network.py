"""User-defined networks train, save and evaluate like the built-in one; unsuitable networks are rejected."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.train.worlds import Counting, Net, TwoInputs, brief
from typer.testing import CliRunner

from tropism.cli import app
from tropism.core.registry import make
from tropism.core.session.session import Session
from tropism.core.spaces import Box, Discrete, Image
from tropism.errors import ValidationError
from tropism.train.evaluation import evaluate, evaluate_episodes
from tropism.train.network import ActorCritic
from tropism.train.policies import load, resolve_policy
from tropism.train.ppo import PPO, PPOConfig
from tropism.train.run import CHECKPOINT, train
from tropism.train.runner import LocalRunner
from tropism.train.training import Training

WORLDS = "tests.train.worlds"


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_all_commands_accept_an_agent_with_a_user_network(tmp_path: Path) -> None:
    """Train, resume, evaluate and record; the checkpoint stores the network's name."""
    small = ["--num-envs", "8", "--num-steps", "32", "--out", str(tmp_path / "agent")]
    trained = run("train", "GridWorld-v0", "--network", f"{WORLDS}:Net", "--total-steps", "10240", *small)
    assert trained["returns"][0] > 0.5
    longer = run("train", "GridWorld-v0", "--resume", "--total-steps", "10496", "--out", str(tmp_path / "agent"))
    assert longer["steps"] == 10496
    policy = ["--policy", str(tmp_path / "agent"), "--episodes", "8"]
    assert run("evaluate", "GridWorld-v0", *policy)["policies"][0]["return"]["mean"] > 0.5
    assert run("record", "GridWorld-v0", *policy, "-o", str(tmp_path / "recorded"))["mean_return"] > 0.5
    other = ["train", "GridWorld-v0", "--resume", "--network", f"{WORLDS}:Counting", "--out", str(tmp_path / "agent")]
    with pytest.raises(ValidationError, match="as in the training run in"):
        CliRunner().invoke(app, other, catch_exceptions=False)


@pytest.mark.slow
def test_user_network_memory_in_training_and_evaluation(tmp_path: Path) -> None:
    """Rollout, loss, compiled evaluation and stepwise evaluation use the same memory."""
    train(brief("GridWorld-v0", network=Counting, updates=2), tmp_path)
    env, params = make("GridWorld-v0", params={"max_steps": 12})
    agent: Any = resolve_policy(str(tmp_path), env, params)
    compiled = evaluate("counting", env, params, agent, 3, 4)
    played = evaluate_episodes("counting", LocalRunner(Session(env, params)), agent, 3, 4)
    assert compiled.lengths.tolist() == played.lengths.tolist()
    np.testing.assert_allclose(compiled.returns, played.returns, rtol=1e-6)


@pytest.mark.slow
def test_loss_replays_the_memories_of_a_user_network() -> None:
    """Before the first gradient step, the replayed sequences give the probabilities of the rollout."""
    config = PPOConfig(total_steps=64, num_envs=4, num_steps=16, minibatches=1, entropy=0.0)
    trainer = PPO(*make("GridWorld-v0", params={"max_steps": 5}), config, Counting)
    state = trainer.init(jax.random.key(0))
    _, samples = eqx.filter_jit(trainer._collect)(state, jax.random.key(1))  # pyright: ignore[reportPrivateUsage]
    assert samples.memory["steps"][:, 0].tolist() == [0, 1, 2, 3, 4] * 3 + [0]  # reset with each episode
    assert samples.memory["action"][:6, 0].tolist() == [-1, *samples.action[:4, 0].tolist(), -1]
    advantage = jax.random.normal(jax.random.key(2), samples.reward.shape)
    data = trainer._sequences(state, samples, advantage)  # pyright: ignore[reportPrivateUsage]
    loss = trainer._loss(state.agent, data)  # pyright: ignore[reportPrivateUsage]
    error = 0.5 * float((advantage**2).mean())
    assert float(loss) == pytest.approx(config.value_weight * error, abs=1e-5)


@pytest.mark.slow
def test_user_network_receives_structured_observations(tmp_path: Path) -> None:
    training = brief(f"{WORLDS}:PictureAndPlace", network=TwoInputs, updates=2)
    state, _ = train(training, tmp_path)
    assert state.obs_statistics.mean["picture"] is None  # integers are not normalized
    assert state.obs_statistics.mean["place"].shape == (1, 2)
    agent: Any = load(tmp_path / CHECKPOINT)
    action, _ = agent.act(
        jax.random.key(0), None, {"place": np.zeros(2, np.float32), "picture": np.zeros((8, 8, 3), "u1")}
    )
    assert agent.actions.space.contains(np.asarray(action))


@pytest.mark.slow
def test_log_std_of_a_user_network_is_trained(tmp_path: Path) -> None:
    state, _ = train(brief("Pendulum-v1", network=Net, updates=2), tmp_path)
    assert state.agent.log_std.shape == (1, 1)
    assert state.agent.log_std != 0
    agent: Any = load(tmp_path / CHECKPOINT)
    action, _ = agent.act(jax.random.key(0), None, np.ones(3, np.float32))
    assert action.shape == (1,)


@pytest.mark.slow
def test_network_class_that_is_not_importable_is_passed_to_load(tmp_path: Path) -> None:
    class Local(Net):
        """Defined in a function."""

    train(brief("GridWorld-v0", network=Local, updates=1), tmp_path)
    with pytest.raises(ValidationError, match="an importable module:Class"):
        load(tmp_path / CHECKPOINT)
    policy: Any = load(tmp_path / CHECKPOINT, network=Local)
    assert isinstance(policy.agent.network, Local)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("observation_space", "obs"),
    [(Box(-1.0, 1.0, (3,)), np.zeros(3, np.float32)), (Image(16, 16), np.zeros((16, 16, 3), np.uint8))],
)
@pytest.mark.parametrize("action_space", [Discrete(4), Box(-1.0, 1.0, (2, 3))])
@pytest.mark.parametrize("recurrent", [False, True])
def test_built_in_network_has_the_interface_of_user_networks(
    observation_space: Any, obs: Any, action_space: Any, recurrent: bool
) -> None:
    network = ActorCritic(observation_space, action_space, key=jax.random.key(0), hidden=8, recurrent=recurrent)
    memory = network.memory()
    outputs, value, after = network(jnp.asarray(obs), memory)
    assert outputs.shape == ((4,) if isinstance(action_space, Discrete) else (2, 3))
    assert value.shape == ()
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, memory)


class Uncallable(eqx.Module):
    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        """Nothing to make."""


class Greedy(Uncallable):
    def __call__(self, obs: Any) -> Any:
        return jnp.zeros(4), jnp.zeros(()), None


class Pair(Uncallable):
    def __call__(self, obs: Any, memory: Any) -> Any:
        return jnp.zeros(4), jnp.zeros(())


class ThreeOutputs(Uncallable):
    def __call__(self, obs: Any, memory: Any) -> Any:
        return jnp.zeros(3), jnp.zeros(()), memory


class WideValue(Uncallable):
    def __call__(self, obs: Any, memory: Any) -> Any:
        return jnp.zeros(4), jnp.zeros(1), memory


class WholeOutputs(Uncallable):
    def __call__(self, obs: Any, memory: Any) -> Any:
        return jnp.zeros(4, jnp.int32), jnp.zeros(()), memory


class Forgetful(Uncallable):
    def __call__(self, obs: Any, memory: Any) -> Any:
        return jnp.zeros(4), jnp.zeros(()), obs


class Growing(Forgetful):
    def memory(self) -> Any:
        return jnp.zeros(7)


class NoKey(eqx.Module):
    def __init__(self, observation_space: Any, action_space: Any):
        """Without a key."""


class NoModule:
    def __init__(self, observation_space: Any, action_space: Any, *, key: Any):
        """No pytree."""


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (NoModule, "derives from equinox.Module"),
        ("tests.train.worlds:brief", "derives from equinox.Module"),
        ("tests.train.worlds:Missing", "no 'Missing'"),
        ("no_such_module:Net", "importable module:Class"),
        ("Net", "module:Class"),
        (NoKey, r"Network\(observation_space, action_space, \*, key\)"),
        (Uncallable, r"called as network\(obs, memory\)"),
        (Greedy, r"network\(obs, memory\) .too many positional arguments"),
        (Pair, r"the tuple \(outputs, value, memory\), not \(float32\[4\], float32\[\]\)"),
        (ThreeOutputs, r"the logits of Discrete\(4\), of shape \(4,\) and a real dtype, not float32\[3\]"),
        (WholeOutputs, r"a real dtype, not int32\[4\]"),
        (WideValue, r"a value of shape \(\) and a real dtype, not float32\[1\]"),
        (Forgetful, r"a method memory\(\) that returns the initial memory"),
        (Growing, r"a memory like that of memory\(\), float32\[7\], not float32\[2\]"),
    ],
)
def test_unsuitable_network_is_rejected_before_training(network: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=message):
        train(Training("GridWorld-v0", {}, {}, PPOConfig(), 0, 1, network), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recurrent"], "recurrent is True; expected no value with --network"),
        (["--hidden", "64"], "hidden is 64; expected no value with --network"),
        (["--num-envs", "6"], "a divisor of num_envs, 6, because the network has a memory"),
    ],
)
def test_options_of_the_built_in_network_are_rejected_with_a_user_network(
    options: list[str], message: str, tmp_path: Path
) -> None:
    command = ["train", "GridWorld-v0", "--network", f"{WORLDS}:Counting", "--out", str(tmp_path / "agent"), *options]
    with pytest.raises(ValidationError, match=message):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_user_network_ignores_the_layers_of_a_preset(tmp_path: Path) -> None:
    """PlumeNav's preset is recurrent, which applies to the built-in network only."""
    command = ["train", "PlumeNav-v0", "--network", f"{WORLDS}:Net", "--out", str(tmp_path), "--total-steps", "8191"]
    with pytest.raises(ValidationError, match="at least 8192, the steps of one update"):
        CliRunner().invoke(app, command, catch_exceptions=False)
