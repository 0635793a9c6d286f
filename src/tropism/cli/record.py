"""The command record."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Greedy,
    Id,
    On,
    Params,
    PolicyName,
    Seed,
    environment,
    print_rows,
    progress_bar,
)
from tropism.errors import ValidationError


def record(
    id: Id,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder; appends to recordings of this environment.")],
    episodes: Annotated[int, typer.Option(help="Episodes; episode i has seed SEED + i.", min=1)] = 10,
    policy: PolicyName = "random",
    greedy: Greedy = False,
    steps: Annotated[int, typer.Option(help="Maximum steps per episode.", min=1)] = 1000,
    seed: Seed = 0,
    param: Params = None,
    arg: Arguments = None,
    on: On = None,
    memory: Annotated[bool, typer.Option("--memory", help="Also record the policy's memory in each step.")] = False,
    as_json: AsJson = False,
) -> None:
    """Record episodes into a folder of Parquet files.

    Example: tropism record CartPole-v1 --episodes 100 -o recordings/cartpole
    """
    from tropism.cli.policies import find_policy
    from tropism.core.session.session import Session

    import_module("tropism.record")  # reports a missing extra before the progress bar
    session = Session(*environment(id, param, arg))
    if memory and on is not None:
        raise ValidationError("memory", True, "no --memory with --on")
    chosen = find_policy(policy, session, greedy)
    try:
        with progress_bar() as bar:
            task = bar.add_task(id, total=episodes)

            def show(done: int) -> None:
                bar.update(task, completed=done)

            if on is None:
                total_steps, mean = _record_steps(session, chosen, out, seed, episodes, steps, memory, show)
            else:
                total_steps, mean = _record_on(on, session, chosen, out, seed, episodes, steps, show)
    except OSError as error:
        raise ValidationError("out", str(out), f"a folder that can be written to ({error})") from None
    print_rows([{"folder": str(out), "episodes": episodes, "steps": total_steps, "mean_return": mean}], as_json)


def _record_steps(
    session: Any,
    policy: Any,
    out: Path,
    seed: int,
    episodes: int,
    steps: int,
    memory: bool,
    show: Callable[[int], None],
) -> tuple[int, float]:
    """Write each step before the next; return the number of steps and the mean return."""
    from tropism.core.rollout.stepped import SteppedPolicy
    from tropism.record import Recorder

    returns: list[float] = []
    total_steps = 0
    stepped = SteppedPolicy(policy, session.env.pure)
    stepped.reset(seed)
    memory_size = stepped.memory.size if memory else 0
    if memory and not memory_size:
        raise ValidationError("memory", True, "a policy with memory")

    def current_memory() -> Any:
        return stepped.memory if memory else None

    with Recorder(session, out, memory_size=memory_size) as recorder:
        for number in range(episodes):
            stepped.reset(seed + number)
            timestep = recorder.reset(seed=seed + number, memory=current_memory())
            while session.step_count < steps and not (timestep.terminated or timestep.truncated):
                action = stepped.act(timestep.obs)
                timestep = recorder.step(action, current_memory())
            returns.append(session.total_reward)
            total_steps += session.step_count
            show(number + 1)
    return total_steps, sum(returns) / len(returns)


def _record_on(
    on: str, session: Any, policy: Any, out: Path, seed: int, episodes: int, steps: int, show: Callable[[int], None]
) -> tuple[int, float]:
    """Run episodes on an executor and write those that are complete, in order."""
    from tropism.scale import record

    totals = record(session.env, session.params, policy, out, seed, episodes, steps, show, on=on)
    return totals.steps, totals.mean_return
