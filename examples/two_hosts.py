"""Roll out, evaluate and train on the devices of two processes, joined by `jax.distributed`, and compare with one device.

On a cluster each host runs the part after `initialize()`; there, `jax.distributed.initialize()` needs no arguments.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

DEVICES_PER_PROCESS = 1
FLAG = f"--xla_force_host_platform_device_count={DEVICES_PER_PROCESS}"  # CPU "devices", in place of GPUs


def figures(devices: str | None, folder: Path) -> dict[str, object]:
    """Results that every process computes together with the others, and returns alike."""
    import jax

    import tropism
    from tropism.train import PPOConfig, Training, evaluate, train

    env, params = tropism.make("CartPole-v1")
    policy = tropism.random_policy(env, params)
    rolled = tropism.rollout(env, policy, jax.random.key(0), 64, 20, collect=False, devices=devices)
    evaluation = evaluate("random", env, params, policy, seed=0, num_episodes=32, devices=devices)
    config = PPOConfig(total_steps=128, num_envs=4, num_steps=16, epochs=1)
    _, history = train(Training("CartPole-v1", {}, {}, config, seed=0, seeds=1), folder, devices=devices)
    episodes = {"episodes": int(rolled.episodes.episodes), "mean_return": float(rolled.episodes.mean_return)}
    return {"rollout": episodes, "returns": evaluation.returns.tolist(), "curve": history}


def run_process(number: int, address: str) -> None:
    import jax

    jax.distributed.initialize(address, num_processes=2, process_id=number)
    with tempfile.TemporaryDirectory() as folder:
        result = figures("all", Path(folder))
    print(json.dumps({"process": number, "devices": jax.device_count(), **result}))


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{}".format(free.getsockname()[1])
    environ = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAG}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, address]
    processes = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, env=environ) for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        alone = figures(None, Path(folder))
    replies = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    for reply in replies:
        agree = all(reply[name] == alone[name] for name in alone)
        print(f"process {reply['process']}: {reply['devices']} devices, {'agrees' if agree else 'DIFFERS'} with one device")


if __name__ == "__main__":
    run_process(int(sys.argv[2]), sys.argv[1]) if len(sys.argv) > 1 else main()
