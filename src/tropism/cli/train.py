"""The command train."""

import dataclasses
import inspect
import shlex
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
    announce_duration,
    console,
    errors,
    made_folder,
    pair,
    plain_warnings,
    print_rows,
    progress_bar,
)
from tropism.errors import ValidationError

BUILT_IN_ONLY = {"hidden", "recurrent"}  # numbers that only the built-in network has
COMPILING = "Compiling takes some seconds, up to a minute for a complex environment; then the remaining time is known."


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
    network: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:CLASS",
            help="Your own network: Class(observation_space, action_space, *, key), called as "
            "(obs, memory) -> (outputs, value, memory). Default: layers or convolutions, as the observation asks for.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on from the checkpoint in --out, exactly; --total-steps may lengthen it."),
    ] = False,
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
    folder = out or Path("runs") / "train" / id.replace(":", ".")
    if resume and force:
        raise ValidationError("force", True, "False with --resume: one goes on, the other begins anew")
    numbers = {name: value for name, value in config.items() if value is not None}
    given = _Given(id, param, arg, seed, seeds, network, numbers)
    remains = _Remains(given, folder, resume, force)
    with interruptible(remains.message), plain_warnings():
        history = _run(given, folder, remains, tensorboard)
    _tell(id, folder, history, as_json)


def _run(given: "_Given", folder: Path, remains: "_Remains", tensorboard: bool) -> list[Any]:
    """Train, draw the learning curve and return it; show how far the training is."""
    from tropism.train import pictures
    from tropism.train.checkpoint import history_of
    from tropism.train.run import CHECKPOINT, Report
    from tropism.train.run import train as run
    from tropism.train.tensorboard import event_log, no_log

    if (folder / CHECKPOINT).exists() and not remains.resume and not remains.force:
        raise ValidationError("out", str(folder), "a folder without an agent, or --resume, or --force to replace it")
    recipe = _begun(folder / CHECKPOINT, given) if remains.resume else _new(given)
    before = history_of(folder / CHECKPOINT) if remains.resume else []
    done = before[-1][0] if before else 0
    if done >= recipe.config.num_updates * recipe.config.batch:
        words = f"The training in {folder} is finished: {done:,} steps. A larger --total-steps lengthens it."
        errors.print(words, highlight=False, markup=False, soft_wrap=True)
        return before
    log = event_log(made_folder(folder) / "tensorboard") if tensorboard else no_log
    errors.print(_announcement(recipe.trainer(), recipe, done), highlight=False, markup=False, soft_wrap=True)
    with progress_bar() as bar:
        task = bar.add_task(f"{recipe.id}: compiling", total=recipe.config.num_updates * recipe.config.batch)

        def show(report: Report) -> None:
            log(report)
            words = f"{recipe.id}: {_summary(report)}"
            bar.update(task, completed=report.steps, total=report.total_steps, description=words)

        def started(steps: int, seconds: float) -> None:
            announce_duration(recipe.id, seconds)
            bar.update(task, completed=steps)  # the bar estimates the remaining time from this and the next report

        _, history = run(recipe, made_folder(folder), show, remains.resume, started)
    pictures.learning_curve(recipe.id, history, folder / "curve.part.png")
    (folder / "curve.part.png").replace(folder / "curve.png")
    return history


@dataclasses.dataclass
class _Remains:
    """What Ctrl-C leaves of a training."""

    given: "_Given"
    folder: Path
    resume: bool
    force: bool

    def __post_init__(self) -> None:
        self._before = self._agents()

    def _agents(self) -> set[int]:
        """The checkpoint in the folder; each that is saved is another file, by its number."""
        return {path.stat().st_ino for path in self.folder.glob("*.tropism")}

    def message(self) -> str:
        for part in self.folder.glob("*.part*"):
            part.unlink(missing_ok=True)
        if self.resume or self._agents() - self._before:
            total = self.given.config.get("total_steps") if self.resume else None
            longer = "" if total is None else f" --total-steps {total}"
            return f"Go on with: tropism train {self.given.id} --out {shlex.quote(str(self.folder))} --resume{longer}"
        if self.force:
            return f"Nothing was saved yet, so {self.folder} is unchanged; start again with the same command."
        return "Nothing was saved yet; start again with the same command."


def _announcement(trainer: Any, recipe: Any, done: int) -> str:
    """What is going to be done, and how long it takes until something is to be seen."""
    config = recipe.config
    agents = "" if recipe.seeds == 1 else f" of each of {recipe.seeds} agents"
    steps = f"{config.num_updates * config.batch:,} steps{agents} in {config.num_updates:,} updates"
    resumed = f" Going on from step {done:,}." if done else ""
    return f"{recipe.id}: {steps}, {trainer.blueprint.summary}.{resumed} {COMPILING}"


def _tell(id: str, folder: Path, history: list[Any], as_json: bool) -> None:
    from tropism.train.run import CHECKPOINT

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


def _summary(report: Any) -> str:
    mean = "no episode ended yet" if report.mean is None else f"return {report.mean:.4g}"
    error = "" if report.error is None else f" ± {report.error:.2g}"
    return f"{mean}{error}, {report.steps_per_second / 1e3:.3g} k steps/s"


class _Given(NamedTuple):
    """What the command line says of a training; None where it says nothing."""

    id: str
    param: list[str] | None
    arg: list[str] | None
    seed: int | None
    seeds: int | None
    network: str | None
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

    preset = PRESETS.get(given.id, {})
    if given.network is not None:
        for name in BUILT_IN_ONLY & set(given.config):
            expected = "no value with --network: a network of your own has its own layers"
            raise ValidationError(name, given.config[name], expected)
        preset = {name: value for name, value in preset.items() if name not in BUILT_IN_ONLY}
    config = Config(**preset | given.config)
    seeds = (given.seed or 0, given.seeds or 1)
    return Training(given.id, given.arguments, given.params, config, *seeds, given.network)


def _begun(path: Path, given: _Given) -> Any:
    """The training in a checkpoint; what is given must be as it was begun, except for the steps in total."""
    from tropism.train.checkpoint import recipe_of
    from tropism.train.run import check_resumed

    recipe = recipe_of(path)
    asked: dict[str, Any] = {"id": given.id, **given.config}
    asked |= {} if given.param is None else {"params": given.params}
    asked |= {} if given.arg is None else {"arguments": given.arguments}
    others = (("seed", given.seed), ("seeds", given.seeds), ("network", given.network))
    asked |= {name: value for name, value in others if value is not None}
    total = asked.pop("total_steps", recipe.config.total_steps)
    was = recipe._asdict() | dataclasses.asdict(recipe.config)
    for name, value in asked.items():
        if was[name] != value:
            raise ValidationError(name, value, f"{was[name]!r}, with which the training in {path.parent} was begun")
    lengthened = recipe._replace(config=dataclasses.replace(recipe.config, total_steps=total))
    check_resumed(path, lengthened)
    return lengthened
