"""The command bench."""

import time
from typing import Annotated, Any

import typer

from tropism.cli.terminal import AsJson, environment, print_rows, progress_bar


def bench(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Default: all pure environments.")] = None,
    envs: Annotated[int, typer.Option(help="Parallel environments.", min=1)] = 1024,
    seconds: Annotated[float, typer.Option(help="Seconds of measurement per environment.", min=0.01)] = 0.5,
    as_json: AsJson = False,
) -> None:
    """Measure compiled steps per second and the latency of one session step on this machine.

    Example: tropism bench CartPole-v1 Pendulum-v1

    `make bench` in the repository compares with other libraries.
    """
    from tropism.core.registry import registered

    rows: list[dict[str, Any]] = []
    chosen = ids or [spec.id for spec in registered() if spec.traced]
    with progress_bar() as bar:
        task = bar.add_task("", total=len(chosen))
        for id in chosen:
            bar.update(task, description=id)
            env, params = environment(id, None, None)
            rows.append({"id": id, **_measure(env, params, envs, seconds)})
            bar.advance(task)
    print_rows(rows, as_json)


def _measure(env: Any, params: Any, envs: int, seconds: float) -> dict[str, Any]:
    """Compiled steps per second of a batch, and microseconds per session step."""
    import jax

    from tropism.core.rollout.api import rollout as run
    from tropism.core.rollout.plan import Transition
    from tropism.core.rollout.policy import random_policy
    from tropism.core.session.session import Session

    policy = random_policy(env, params)

    def consume(step: Transition) -> Any:
        return sum(leaf.astype("float32").reshape(leaf.shape[0], -1).sum(1) for leaf in jax.tree.leaves(step))

    def batch(steps: int, seed: int) -> float:
        start = time.perf_counter()
        key = jax.random.key(seed)
        jax.block_until_ready(run(env, policy, key, envs, steps, params=params, collect=False, reduce=consume).totals)
        return time.perf_counter() - start

    batch(100, 0)
    steps = max(100, int(100 * seconds / batch(100, 1)))
    batch(steps, 0)
    session = Session(env, params)
    key = jax.random.key(0)
    actions = [session.action_space.coerce(session.action_space.sample(jax.random.fold_in(key, i))) for i in range(64)]
    return {"compiled steps/s": envs * steps / batch(steps, 1), "session µs/step": _latency(session, actions, seconds)}


def _latency(session: Any, actions: list[Any], seconds: float) -> float:
    session.reset(seed=0)
    session.step(actions[0])
    session.reset()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for action in actions:
            timestep = session.step(action)
            if timestep.terminated or timestep.truncated:
                session.reset()
        steps += len(actions)
    return (time.perf_counter() - start) / steps * 1e6
