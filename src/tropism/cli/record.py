"""The command record."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Greedy,
    Id,
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
    memory: Annotated[bool, typer.Option("--memory", help="Also record the policy's memory in each step.")] = False,
    as_json: AsJson = False,
) -> None:
    """Record episodes into a folder of Parquet files.

    Example: tropism record CartPole-v1 --episodes 100 -o recordings/cartpole
    """
    from tropism.cli.policies import policy_of
    from tropism.core.session.session import Session
    from tropism.record import Recorder

    session = Session(*environment(id, param, arg))
    stepped = policy_of(policy, session, greedy)
    stepped.reset(seed)
    memory_size = stepped.memory.size if memory else 0
    if memory and not memory_size:
        raise ValidationError("memory", True, f"a policy with memory, not {policy}")
    returns: list[float] = []

    def current_memory() -> Any:
        return stepped.memory if memory else None

    total_steps = 0
    try:
        with Recorder(session, out, memory_size=memory_size) as recorder, progress_bar() as bar:
            for number in bar.track(range(episodes), description=id):
                stepped.reset(seed + number)
                timestep = recorder.reset(seed=seed + number, memory=current_memory())
                while session.step_count < steps and not (timestep.terminated or timestep.truncated):
                    action = stepped.act(timestep.obs)
                    timestep = recorder.step(action, current_memory())
                returns.append(session.total_reward)
                total_steps += session.step_count
    except OSError as error:
        raise ValidationError("out", str(out), f"a folder that can be written to ({error})") from None
    mean = sum(returns) / len(returns)
    print_rows([{"folder": str(out), "episodes": episodes, "steps": total_steps, "mean_return": mean}], as_json)
