"""Trains a language model to play Connect Four with TRL's GRPO (pip install trl); needs PyTorch and a GPU.

    python examples/trl_grpo.py Qwen/Qwen3-0.6B

Without a model, it plays one game with random moves through the tool that the model would use.
"""

import random
import sys
from importlib import import_module
from typing import Any

from tropism.client import Client
from tropism.trl import environment

ID = "ConnectFour-v0"
PROMPT = [{"role": "user", "content": "Win this game of Connect Four. "}]


def play(game: Any) -> float:
    """One game with random moves."""
    env, text = game(), ""
    env.reset(prompt=PROMPT, seed=1)
    while "The episode is over" not in text:
        text = env.drop_disc(column=random.randrange(7))
    return env.get_reward()


def train(model: str, game: Any) -> None:
    trl: Any = import_module("trl")
    rows = import_module("datasets").Dataset.from_list([{"prompt": PROMPT, "seed": seed} for seed in range(64)])
    trl.GRPOTrainer(model=model, train_dataset=rows, environment_factory=game).train()


def main() -> None:
    with Client.launch(ID) as server:
        game = environment(ID, server.url.removesuffix(f"/envs/{ID}"))
        if len(sys.argv) > 1:
            train(sys.argv[1], game)
        else:
            print(f"return of a random game: {play(game):.1f}")


if __name__ == "__main__":
    main()
