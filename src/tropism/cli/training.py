"""The command train."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from tropism.cli.interrupts import interruptible
from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Id,
    Params,
    console,
    made_folder,
    pair,
    print_rows,
    progress_bar,
)
from tropism.errors import ValidationError


def _takes_config(command: Callable[..., None]) -> Callable[..., None]:
    """Every field of PPO's `Config` as an option; None stands for the preset's or the default, which the help tells."""
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
    command.__doc__ = f"{inspect.getdoc(command)}\n\nPresets, which go before the defaults below:\n\n{_presets()}"
    return command


def _presets() -> str:
    """A paragraph for each preset: the environments that it is for, and its numbers."""
    from tropism.train.presets import PRESETS

    told: dict[str, list[str]] = {}
    for id, preset in PRESETS.items():
        told.setdefault(", ".join(f"{name} {value}" for name, value in preset.items()), []).append(id)
    return "\n\n".join(f"{', '.join(ids)}: {numbers}." for numbers, ids in told.items())


@_takes_config
def train(
    id: Id,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the agent goes; runs/train/ID by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Where all randomness comes from. Default 0.", min=0)] = None,
    seeds: Annotated[int | None, typer.Option(help="Agents trained side by side. Default 1.", min=1)] = None,
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
    """Train an agent with PPO, compiled; numbers not given are those of the environment's preset, or the defaults.

    Example: tropism train CartPole-v1 --seeds 4
    """
    from tropism.train import pictures
    from tropism.train.events import event_log, no_log
    from tropism.train.run import CHECKPOINT, Report
    from tropism.train.run import train as run

    folder = out or Path("runs") / "train" / id.replace(":", ".")
    if resume and force:
        raise ValidationError("force", True, "False with --resume: one goes on, the other begins anew")
    if (folder / CHECKPOINT).exists() and not resume and not force:
        raise ValidationError("out", str(folder), "a folder without an agent, or --resume, or --force to replace it")
    given = _Given(id, param, arg, seed, seeds, {name: value for name, value in config.items() if value is not None})
    recipe = _begun(folder / CHECKPOINT, given) if resume else _new(given)
    recipe.trainer()  # whatever is wrong with the numbers is said now
    log = event_log(made_folder(folder) / "tensorboard") if tensorboard else no_log

    def left() -> str:
        saved = (folder / CHECKPOINT).exists()
        return f"Go on with: tropism train {id} --out {folder} --resume" if saved else "Nothing was saved yet."

    with interruptible(left), progress_bar() as bar:
        task = bar.add_task(f"{id}: compiling", total=recipe.config.num_updates * recipe.config.batch)

        def show(report: Report) -> None:
            log(report)
            bar.update(task, completed=report.steps, total=report.total_steps, description=f"{id}: {_told(report)}")

        _, history = run(recipe, made_folder(folder), show, resume)
    pictures.learning_curve(id, history, folder / "curve.png")
    steps, returns = history[-1]
    if as_json:
        row = {"id": id, "steps": steps, "returns": returns, "agent": str(folder / CHECKPOINT)}
        print_rows([row], as_json=True)
        return
    last = ", ".join("none ended" if value is None else f"{value:.4g}" for value in returns)
    console.print(
        f"{steps:,} steps. Return of the last episodes: {last}.\n"
        f"The agent and its curve are in {folder}/. Next: tropism evaluate {id} --policy {folder}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _told(report: Any) -> str:
    mean = "no episode ended yet" if report.mean is None else f"return {report.mean:.4g}"
    error = "" if report.error is None else f" ± {report.error:.2g}"
    return f"{mean}{error}, {report.steps_per_second / 1e3:.0f} k steps/s"


class _Given(NamedTuple):
    """What the command line says of a training; None where it says nothing."""

    id: str
    param: list[str] | None
    arg: list[str] | None
    seed: int | None
    seeds: int | None
    config: dict[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        return dict(pair("--param", text) for text in self.param or [])

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(pair("--arg", text) for text in self.arg or [])


def _new(given: _Given) -> Any:
    from tropism.train.checkpoint import Training
    from tropism.train.config import Config
    from tropism.train.presets import PRESETS

    config = Config(**PRESETS.get(given.id, {}) | given.config)
    return Training(given.id, given.arguments, given.params, config, given.seed or 0, given.seeds or 1)


def _begun(path: Path, given: _Given) -> Any:
    """The training in a checkpoint; what is given must be as it was begun."""
    from tropism.train.checkpoint import recipe_of

    recipe = recipe_of(path)
    asked: dict[str, Any] = {"id": given.id, **given.config}
    asked |= {} if given.param is None else {"params": given.params}
    asked |= {} if given.arg is None else {"arguments": given.arguments}
    asked |= {name: value for name, value in (("seed", given.seed), ("seeds", given.seeds)) if value is not None}
    was = recipe._asdict() | dataclasses.asdict(recipe.config)
    for name, value in asked.items():
        if was[name] != value:
            raise ValidationError(name, value, f"{was[name]!r}, with which the training in {path.parent} was begun")
    return recipe
