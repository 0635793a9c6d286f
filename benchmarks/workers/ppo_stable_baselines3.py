"""Stable-Baselines3's PPO on Gymnasium's CartPole until it is learnt, with its defaults or RL Zoo's hyperparameters."""

import importlib
import time
from typing import Any

from benchmarks.last_episodes import LastEpisodes
from benchmarks.worker import print_training

library: Any = importlib.import_module("stable_baselines3")
callbacks: Any = importlib.import_module("stable_baselines3.common.callbacks")
env_util: Any = importlib.import_module("stable_baselines3.common.env_util")
torch: Any = importlib.import_module("torch")

NUMBERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "zoo": {
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": lambda left: left * 1e-3,
        "clip_range": lambda left: left * 0.2,
    },
}
NUM_ENVS = {"defaults": 1, "zoo": 8}
TOTAL_STEPS = {"defaults": 1_000_000, "zoo": 100_000}  # RL Zoo's rates decay to zero over the total


class UntilLearnt(callbacks.BaseCallback):
    """Stop when the task is learnt or the time limit is reached."""

    def __init__(self, seconds: float):
        super().__init__()
        self.episodes = LastEpisodes()
        self.deadline = time.perf_counter() + seconds

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.episodes.add(1, float(info["episode"]["r"]))
        return not self.episodes.learnt and time.perf_counter() < self.deadline


def train(numbers: str, seed: int, limit: float) -> tuple[int, LastEpisodes]:
    torch.set_num_threads(1)  # faster for small networks
    env = env_util.make_vec_env("CartPole-v1", NUM_ENVS[numbers], seed=seed)
    model = library.PPO("MlpPolicy", env, device="cpu", seed=seed, **NUMBERS[numbers])
    stop_when_learnt = UntilLearnt(limit)
    model.learn(TOTAL_STEPS[numbers], callback=stop_when_learnt)
    return int(model.num_timesteps), stop_when_learnt.episodes


if __name__ == "__main__":
    print_training(train, ("stable-baselines3", "torch", "gymnasium"))
