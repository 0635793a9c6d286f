"""The command train."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Id,
    Params,
    Seed,
    pair,
    print_rows,
    progress_bar,
)
from tropism.errors import ValidationError


def _takes_config(command: Callable[..., None]) -> Callable[..., None]:
    """Every field of PPO's `Config` as an option; None stands for the preset's or the default."""
    from tropism.train.config import Config

    kinds = get_type_hints(Config)
    own = [p for p in inspect.signature(command).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                kinds[each.name] | None, typer.Option(help=f"{each.metadata['help']} Default {each.default}.")
            ],
        )
        for each in dataclasses.fields(Config)
    ]
    every = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + options
    command.__signature__ = inspect.Signature(every)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {p.name: p.annotation for p in every}
    return command


@_takes_config
def train(
    id: Id,
    out: Annotated[Path | None, typer.Option(help="Where the agent goes; runs/train/ID by default.")] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Agents trained side by side.", min=1)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in --out, exactly.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the agent that is in --out.")] = False,
    param: Params = None,
    arg: Arguments = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write events for TensorBoard into --out, too.")
    ] = False,
    as_json: AsJson = False,
    **config: Any,
) -> None:
    """Train an agent with PPO, compiled; numbers not given come from the environment's preset.

    Example: tropism train CartPole-v1 --seeds 4
    """
    from tropism.train import pictures
    from tropism.train.checkpoint import Training
    from tropism.train.config import Config
    from tropism.train.events import event_log, no_log
    from tropism.train.presets import PRESETS
    from tropism.train.run import CHECKPOINT, Report
    from tropism.train.run import train as run

    given = {name: value for name, value in config.items() if value is not None}
    params = dict(pair("--param", text) for text in param or [])
    arguments = dict(pair("--arg", text) for text in arg or [])
    recipe = Training(id, arguments, params, Config(**PRESETS.get(id, {}) | given), seed, seeds)
    folder = out or Path("runs") / "train" / id.replace(":", ".")
    if resume and force:
        raise ValidationError("force", True, "False with --resume: one goes on, the other begins anew")
    if (folder / CHECKPOINT).exists() and not resume and not force:
        raise ValidationError("out", str(folder), "a folder without an agent, or --resume, or --force to replace it")
    log = event_log(folder / "tensorboard") if tensorboard else no_log
    recipe.trainer()  # whatever is wrong with the numbers is said now
    with progress_bar() as bar:
        task = bar.add_task(f"{id}: compiling", total=recipe.config.num_updates * recipe.config.batch)

        def show(report: Report) -> None:
            mean = "no episode ended yet" if report.mean is None else f"return {report.mean:.4g}"
            mean += "" if report.error is None else f" ± {report.error:.2g}"
            speed = f"{report.steps_per_second / 1e3:.0f} k steps/s"
            log(report)
            bar.update(task, completed=report.steps, total=report.total_steps, description=f"{id}: {mean}, {speed}")

        _, history = run(recipe, folder, show, resume)
    pictures.learning_curve(id, history, folder / "curve.png")
    steps, returns = history[-1]
    print_rows([{"id": id, "steps": steps, "returns": returns, "agent": str(folder / CHECKPOINT)}], as_json)
