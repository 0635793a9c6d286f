"""Use the devices of two processes, joined by `jax.distributed`, as one machine, and compare with a single device.

On a cluster every host runs `jax.distributed.initialize()`, which finds the others, and then the same program.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import jax

import tropism
from tropism.train import PPOConfig, Training, evaluate, train

DEVICES_PER_PROCESS = 1
FLAG = f"--xla_force_host_platform_device_count={DEVICES_PER_PROCESS}"  # CPU "devices", in place of GPUs


def figures(devices: str | None, folder: Path) -> dict[str, object]:
    """Results that all processes compute together; each returns the same ones."""
    env, params = tropism.make("CartPole-v1")
    policy = tropism.random_policy(env, params)
    rolled = tropism.rollout(env, policy, jax.random.key(0), 64, 20, collect=False, devices=devices)
    evaluation = evaluate("random", env, params, policy, seed=0, num_episodes=32, devices=devices)
    config = PPOConfig(total_steps=128, num_envs=4, num_steps=16, epochs=1)
    _, history = train(Training("CartPole-v1", {}, {}, config, seed=0, seeds=1), folder, devices=devices)
    episodes = {"episodes": int(rolled.episodes.episodes), "mean_return": float(rolled.episodes.mean_return)}
    return {"rollout": episodes, "returns": evaluation.returns.tolist(), "curve": history}


def run_process(number: int, address: str) -> None:
    jax.distributed.initialize(address, num_processes=2, process_id=number)
    with tempfile.TemporaryDirectory() as folder:
        result = figures("all", Path(folder))
    print(json.dumps({"process": number, "devices": jax.device_count(), **result}))


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environ = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAG}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, address]
    processes = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, env=environ) for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        alone = figures(None, Path(folder))
    replies = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    for reply in replies:
        assert reply["devices"] == 2
        assert all(reply[name] == alone[name] for name in alone)
    print("two processes with a device each agree with one device")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_process(int(sys.argv[2]), sys.argv[1])
    else:
        main()
