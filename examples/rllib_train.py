"""RLlib trains PPO on a Tropism environment: `pip install "tropism[gym]" "ray[rllib]" torch`."""

import gymnasium
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune import register_env

ID = "tropism.gym:tropism/CartPole-v1"  # the module registers the id, in every process
UPDATES = 2


def main() -> None:
    register_env("tropism", lambda _config: gymnasium.make(ID))
    config = (
        PPOConfig()
        .environment("tropism")
        .env_runners(num_env_runners=1)
        .training(train_batch_size_per_learner=512, minibatch_size=128, num_epochs=2)
    )
    algorithm = config.build_algo()
    for _update in range(UPDATES):
        result = algorithm.train()
        print(f"mean return {result['env_runners']['episode_return_mean']:.1f}")
    algorithm.stop()


if __name__ == "__main__":
    main()
