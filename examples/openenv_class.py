"""Plays GridWorld as a class of the openenv package (pip install "openenv>=0.10"), as its server or NeMo Gym would."""

from tropism.openenv import as_class

RIGHT, DOWN = 1, 2


def main() -> None:
    grid = as_class("GridWorld-v0", size=3)
    env = grid()
    observation = env.reset(seed=0)
    total = 0.0
    while not observation.done:
        action = RIGHT if observation.value[1] < 1 else DOWN
        observation = env.step(grid.Action(value=action))
        total += observation.reward
        print(f"step {env.state.step_count}: action {action}, {observation.text.splitlines()[0]}")
    print(f"return {total:.2f}")
    env.close()


if __name__ == "__main__":
    main()
