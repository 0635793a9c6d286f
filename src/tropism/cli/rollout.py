"""Commands that play: rollout, render, bench."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Fps,
    Greedy,
    Id,
    Params,
    PolicyName,
    Seed,
    console,
    environment,
    print_rows,
    progress_bar,
)


def rollout(
    id: Id,
    envs: Annotated[int, typer.Option(help="Environments side by side.", min=1)] = 1024,
    steps: Annotated[int, typer.Option(help="Steps of each.", min=1)] = 1000,
    seed: Seed = 0,
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
        result = run(env, policy, jax.random.key(seed), envs, steps, params=params, collect=False, progress=report)
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


def render(
    id: Id,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .gif, .mp4 or .png file (the last picture).")],
    policy: PolicyName = "random",
    greedy: Greedy = False,
    steps: Annotated[int, typer.Option(help="Steps at most.", min=0)] = 200,
    fps: Fps = None,
    seed: Seed = 0,
    param: Params = None,
    arg: Arguments = None,
) -> None:
    """Film one episode, played at random or by a policy.

    Example: tropism render PlumeNavPuffs-v0 --steps 100 -o puffs.gif --arg trail=100
    Example: tropism render PlumeNavMeander-v0 --policy runs/train/PlumeNavMeander-v0 -o search.mp4
    """
    from tropism.cli.policies import policy_of
    from tropism.core.session.session import Session
    from tropism.record import film

    film.check_path(out)
    session = Session(*environment(id, param, arg))
    player = policy_of(policy, session, greedy)
    player.begin(seed)
    with progress_bar() as bar:
        task = bar.add_task(id, total=steps + 1)
        episode = film.moments(session, lambda session: player.act(session.timestep.obs), steps, seed)
        moments = iter(bar.track(episode, task_id=task))
        if out.suffix.lower() == ".png":  # which shows the last one
            *_, last = moments
            moments = iter((last,))
        film.save(out, map(film.picture, moments), fps)
        bar.update(task, total=session.step_count + 1)  # the episode may have ended sooner
    console.print(
        f"{escape(str(out))}: {session.step_count} steps, return {session.total_reward:.3g}, {session.lifecycle.value}"
    )


def bench(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Default: every pure environment.")] = None,
    envs: Annotated[int, typer.Option(help="Environments side by side.", min=1)] = 1024,
    seconds: Annotated[float, typer.Option(help="How long to measure each.", min=0.01)] = 0.5,
    as_json: AsJson = False,
) -> None:
    """Measure compiled steps per second and the time of one step, here and now.

    Example: tropism bench CartPole-v1 Pendulum-v1

    Comparisons with other libraries are scripts in the repository: make bench.
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
    """Compiled steps per second of a batch, and microseconds for one step of a session."""
    import jax

    from tropism.core.rollout.api import Transition
    from tropism.core.rollout.api import rollout as run
    from tropism.core.rollout.policy import random_policy
    from tropism.core.session.session import Session

    policy = random_policy(env, params)

    def consume(step: Transition) -> Any:
        return sum(leaf.astype("float32").sum() for leaf in jax.tree.leaves(step))

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
