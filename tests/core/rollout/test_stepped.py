"""A policy stepped in a session acts as it does compiled; on the host its keys are plain ints."""

from typing import Any

import jax
import numpy as np
import pytest

from tropism import Session, make
from tropism.core.rollout.episodes import run_episodes
from tropism.core.rollout.policy import HostFunctionPolicy, RandomPolicy, as_policy
from tropism.core.rollout.stepped import SteppedPolicy
from tropism.errors import ValidationError


class Counting:
    """Acts by the number of its steps."""

    def init(self, key: Any) -> Any:
        del key
        return 0

    def act(self, key: Any, memory: Any, obs: Any) -> Any:
        del key, obs
        return memory % 2, memory + 1


def episode_length(env_id: str, policy: Any, seed: int) -> int:
    env, params = make(env_id)
    session, stepped = Session(env, params), SteppedPolicy(policy)
    timestep = session.reset(seed=seed)
    stepped.reset(seed)
    while not (timestep.terminated or timestep.truncated):
        timestep = session.step(stepped.act(timestep.obs))
    return session.step_count


@pytest.mark.parametrize("policy", ["random", "drawing", "counting"])
def test_stepped_policy_acts_as_compiled(policy: str) -> None:
    env, params = make("CartPole-v1")
    policies: dict[str, Any] = {
        "random": RandomPolicy(env.action_space(params)),
        "drawing": as_policy(lambda key, obs: jax.random.randint(key, (), 0, 2)),
        "counting": Counting(),
    }
    compiled = run_episodes(env, policies[policy], 3, 4, params, lambda *_: ())
    assert [episode_length("CartPole-v1", policies[policy], 3 + i) for i in range(4)] == compiled.steps.tolist()


def test_policy_in_a_host_environment_is_not_compiled_and_gets_ints() -> None:
    seen: list[Any] = []

    class Recording(Counting):
        def init(self, key: Any) -> Any:
            seen.append(key)
            return 0

        def act(self, key: Any, memory: Any, obs: Any) -> Any:
            seen.append((key, obs))
            return super().act(key, memory, obs)

    stepped = SteppedPolicy(Recording(), pure=False)
    for _ in range(2):
        stepped.reset(5)
        assert [stepped.act("a"), stepped.act("b")] == [0, 1]
    first, (key, obs), (other, _) = seen[:3]
    assert (first, obs, type(key)) == (5, "a", int)
    assert key != other
    assert seen[:3] == seen[3:]  # a function of the seed


@pytest.mark.parametrize("id", ["Echo-v0", "Chat-v0"])
def test_random_policy_samples_the_spaces_of_host_environments(id: str) -> None:
    env, params = make(id)
    space = env.action_space(params)
    stepped = SteppedPolicy(RandomPolicy(space), env.pure)
    stepped.reset(2**63 + 1)
    actions = [stepped.act(None) for _ in range(4)]
    assert all(space.contains(action) for action in actions)
    assert len({str(action) for action in actions}) > 1


def test_host_function_is_called_with_arrays_and_its_reset_with_the_seed() -> None:
    class Leaning:
        def reset(self, seed: int) -> None:
            self.seed = seed

        def __call__(self, obs: Any) -> int:
            assert isinstance(obs, np.ndarray)
            return self.seed % 2

    stepped = SteppedPolicy(HostFunctionPolicy(Leaning()))
    stepped.reset(7)
    assert stepped.act(np.zeros(4)) == 1


def test_act_must_return_an_action_and_a_memory() -> None:
    class Wrong(Counting):
        def act(self, key: Any, memory: Any, obs: Any) -> Any:
            del key, memory, obs
            return 1

    for pure in (True, False):
        stepped = SteppedPolicy(Wrong(), pure)
        stepped.reset(0)
        with pytest.raises(ValidationError, match="expected \\(action, memory\\)"):
            stepped.act(np.zeros(4))
