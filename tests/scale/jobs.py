"""What the tests of all executors run: policies that other processes import, and a small training run."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tropism import make
from tropism.core.rollout.policy import HostFunctionPolicy
from tropism.train import PPOConfig, Training


class Walk:
    """A policy with a state on the host, which starts anew with each episode: threads must not share it."""

    def __init__(self) -> None:
        self.steps = 0
        self.seed = 0

    def reset(self, seed: int) -> None:
        self.steps, self.seed = 0, int(np.asarray(seed).ravel()[0])

    def __call__(self, obs: Any) -> Any:
        self.steps += 1
        return int((self.steps * 7 + self.seed) % 3 == 0)


class Slow(Walk):
    """Reports the number of its episodes in a file of TROPISM_TEST_MARK."""

    def reset(self, seed: int) -> None:
        super().reset(seed)
        with Path(os.environ["TROPISM_TEST_MARK"]).open("a") as file:
            file.write("x")


def fail(obs: Any) -> Any:
    raise ZeroDivisionError("a fault of the policy")


def exit_now(obs: Any) -> Any:
    os._exit(9)


CARTPOLE = make("CartPole-v1")
WALK = HostFunctionPolicy(Walk())
SMALL = Training("CartPole-v1", {}, {}, PPOConfig(total_steps=128, num_envs=4, num_steps=16, epochs=1), 0, 1)


def assert_equal(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.returns, other.returns)
    np.testing.assert_array_equal(one.lengths, other.lengths)
    assert (one.search is None) == (other.search is None)
    for mine, yours in zip(one.search or (), other.search or (), strict=True):
        np.testing.assert_array_equal(mine, yours)


def kill_worker(find_pid: Callable[[], int], stop_after: int, kill_after: int) -> Callable[[int], None]:
    """A progress callback that stops a worker, so that it does not complete its shard, and later kills it."""
    pids: list[int] = []

    def disturb(done: int) -> None:
        if done >= stop_after and not pids:
            pids.append(find_pid())
            os.kill(pids[0], signal.SIGSTOP)
        if done >= kill_after and len(pids) == 1:
            os.kill(pids[0], signal.SIGKILL)
            pids.append(0)

    return disturb
