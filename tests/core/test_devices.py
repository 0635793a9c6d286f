"""Rollouts and episodes on eight simulated devices, which need a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tropism import make, random_policy, rollout
from tropism.errors import ValidationError


def test_devices_are_all_or_a_list() -> None:
    env, params = make("CartPole-v1")
    for wrong in ("some", [], 8, ["cpu"]):
        with pytest.raises(ValidationError, match='expected "all", or a list of JAX devices'):
            rollout(env, random_policy(env), 0, 4, 2, devices=wrong)
    alone = rollout(env, random_policy(env), 0, 4, 2, params=params)
    listed = rollout(env, random_policy(env), 0, 4, 2, params=params, devices=jax.devices()[:1])
    assert alone.transitions is not None
    assert listed.transitions is not None
    assert (alone.transitions.obs == listed.transitions.obs).all()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["rollout", "episodes", "training"])
def test_eight_devices_agree_with_one(part: str) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    command = [sys.executable, str(Path(__file__).parent / "eight_devices.py"), part]
    subprocess.run(command, env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}, check=True)
