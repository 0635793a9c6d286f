"""The command rollout."""

import time
from typing import Annotated, Any

import typer

from tropism.cli.terminal import Arguments, AsJson, Devices, Id, Params, Seed, environment, print_rows, progress_bar


def rollout(
    id: Id,
    envs: Annotated[int, typer.Option(help="Parallel environments.", min=1)] = 1024,
    steps: Annotated[int, typer.Option(help="Steps per environment.", min=1)] = 1000,
    seed: Seed = 0,
    devices: Devices = None,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Step many copies of an environment with random actions, compiled.

    Example: tropism rollout CartPole-v1 --envs 4096 --param gravity=3.7
    """
    import jax

    from tropism.core.rollout.api import rollout as run
    from tropism.core.rollout.policy import random_policy

    env, params = environment(id, param, arg)
    with progress_bar() as bar:
        task = bar.add_task(f"{id}: compiling", total=steps)
        start = time.perf_counter()

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"{id}: {envs} environments")

        policy = random_policy(env, params)
        options: dict[str, Any] = {"params": params, "collect": False, "progress": report, "devices": devices}
        result = run(env, policy, jax.random.key(seed), envs, steps, **options)
        seconds = time.perf_counter() - start
    episodes = result.episodes
    row = {
        "id": id,
        "envs": envs,
        "steps": envs * steps,
        "episodes": int(episodes.episodes),
        "mean_return": float(episodes.mean_return),
        "mean_length": float(episodes.mean_length),
        "seconds": seconds,
    }
    print_rows([row], as_json)
