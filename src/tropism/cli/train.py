"""The command train."""

import dataclasses
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer
from typer.core import TyperCommand

from tropism.cli.interrupts import interruptible
from tropism.cli.sweep import run_sweep
from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Devices,
    Id,
    On,
    Params,
    announce_duration,
    errors,
    make_folder,
    parse_pairs,
    plain_warnings,
    print_rows,
    print_text,
    progress_bar,
)
from tropism.errors import ValidationError

BUILT_IN_ONLY = {"hidden", "recurrent"}  # options of the built-in network only
COMPILING = "Compilation takes seconds, up to a minute for a complex environment; then the remaining time is shown."


class TrainCommand(TyperCommand):
    """Builds the command on use, because its options come from the algorithms, which import JAX."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        app = typer.Typer(rich_markup_mode="rich", add_completion=False)
        app.command("train")(_with_hyperparameters(train))
        return typer.main.get_command(app).make_context(info_name, args, parent, **extra)


@cache
def _with_hyperparameters(command: Callable[..., None]) -> Callable[..., None]:
    """Add every hyperparameter of the algorithms as an option; None means the preset's value or the default."""
    from tropism.core.registry import presets
    from tropism.train.algorithm import ALGORITHMS, algorithm_class

    algorithms = [algorithm_class(name) for name in ALGORITHMS]
    parameters = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    for algorithm in algorithms:
        kinds = get_type_hints(algorithm.Config)
        for each in dataclasses.fields(algorithm.Config):
            option = typer.Option(help=describe_option(each.name, algorithms))
            kind, annotation = inspect.Parameter.KEYWORD_ONLY, Annotated[kinds[each.name] | None, option]
            parameter = inspect.Parameter(each.name, kind, default=None, annotation=annotation)
            parameters.setdefault(each.name, parameter)
    command.__signature__ = inspect.Signature(list(parameters.values()))  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    described = "\n\n".join(_describe_presets(presets(name)) for name in ALGORITHMS)
    command.__doc__ = f"{inspect.getdoc(command)}\n\nPresets, which override the defaults below:\n\n{described}"
    return command


def describe_option(name: str, algorithms: Sequence[Any]) -> str:
    """The help of a hyperparameter: its meaning and default, and the algorithm if it is not the first one."""
    texts: dict[str, str] = {}  # by algorithm; the same text only once
    for config in (each.Config for each in algorithms if name in each.Config.__dataclass_fields__):
        field = config.__dataclass_fields__[name]
        text = field.metadata["help"] + ("" if field.default == "" else f" Default {field.default}.")
        texts |= {} if text in texts.values() else {config.algorithm: text}
    return " ".join(text if by == "ppo" else f"With {by}: {text}" for by, text in texts.items())


def _describe_presets(presets: Mapping[str, Mapping[str, Any]]) -> str:
    """A paragraph per preset: its environments and its values."""
    ids_by_preset: dict[str, list[str]] = {}
    for id, preset in presets.items():
        ids_by_preset.setdefault(", ".join(f"{name} {value}" for name, value in preset.items()), []).append(id)
    return "\n\n".join(f"{', '.join(ids)}: {numbers}." for numbers, ids in ids_by_preset.items())


def train(
    id: Id,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output folder; runs/train/ID by default.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness. Default 0.", min=0)] = None,
    seeds: Annotated[int | None, typer.Option(help="Agents trained in parallel. Default 1.", min=1)] = None,
    algorithm: Annotated[str | None, typer.Option(metavar="ppo|q-learning|MODULE:CLASS", help="Default ppo.")] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:CLASS",
            help="User-defined network: Class(observation_space, action_space, *, key), called as "
            "(obs, memory) -> (outputs, value, memory). Default: convolutions for images, dense layers otherwise.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume from the checkpoint in --out, bit for bit; --total-steps extends the run."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the agent in --out.")] = False,
    param: Params = None,
    arg: Arguments = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events to --out.")] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,VALUE",
            help="Train with each value of a hyperparameter, each into its own folder. Repeat it for all combinations.",
        ),
    ] = None,
    on: On = None,
    devices: Devices = None,
    as_json: AsJson = False,
    **config: Any,
) -> None:
    """Train an agent, compiled, by default with PPO.

    Example: tropism train CartPole-v1 --seeds 4
    """
    folder = out or Path("runs") / "train" / id.replace(":", ".")
    if resume and force:
        raise ValidationError("force", True, "no --force with --resume: one continues, the other starts over")
    numbers = {name: value for name, value in config.items() if value is not None}
    params = None if param is None else parse_pairs("--param", param)
    arguments = None if arg is None else parse_pairs("--arg", arg)
    options = _Options(id, params, arguments, seed, seeds, algorithm, network, numbers)
    if sweep or on is not None:
        excluded = {"resume": resume, "force": force, "tensorboard": tensorboard, "devices": devices is not None}
        _check_absent(excluded)
        run_sweep(_new_training(options), folder, sweep or [], on, as_json)
        return
    interruption = _Interruption(options, folder, resume, force)
    with interruptible(interruption.message), plain_warnings():
        history = _run(options, folder, interruption, tensorboard, devices)
    _print_result(id, folder, history, as_json)


def _check_absent(options: dict[str, bool]) -> None:
    for name, given in options.items():
        if given:
            raise ValidationError(name, given, f"no --{name} with --sweep or --on")


def _run(
    options: "_Options", folder: Path, interruption: "_Interruption", tensorboard: bool, devices: str | None
) -> list[Any]:
    """Train with a progress bar, draw the learning curve, and return it."""
    from tropism.drawing import plots
    from tropism.train.checkpoint import load_history
    from tropism.train.run import CHECKPOINT, TrainingReport
    from tropism.train.run import train as run
    from tropism.train.tensorboard import event_log

    if (folder / CHECKPOINT).exists() and not interruption.resume and not interruption.force:
        raise ValidationError("out", str(folder), "a folder without an agent, or --resume, or --force to replace it")
    training = _resumed_training(folder / CHECKPOINT, options) if interruption.resume else _new_training(options)
    before = load_history(folder / CHECKPOINT) if interruption.resume else []
    done = before[-1][0] if before else 0
    if done >= training.config.num_updates * training.config.batch:
        message = f"The training run in {folder} is finished: {done:,} steps. Increase --total-steps to continue."
        print_text(message, errors)
        return before
    log = event_log(make_folder(folder) / "tensorboard") if tensorboard else None
    print_text(_announcement(training, done), errors)
    with progress_bar() as bar:
        task = bar.add_task(f"{training.id}: compiling", total=training.config.num_updates * training.config.batch)

        def show(report: TrainingReport) -> None:
            if log is not None:
                log(report)
            description = f"{training.id}: {_summary(report)}"
            bar.update(task, completed=report.steps, total=report.total_steps, description=description)

        def on_estimate(steps: int, seconds: float) -> None:
            announce_duration(training.id, seconds)
            bar.update(task, completed=steps)  # the bar computes the remaining time from this and the next report

        _, history = run(training, make_folder(folder), show, interruption.resume, on_estimate, devices)
    plots.draw_learning_curve(training.id, history, folder / "curve.part.png")
    (folder / "curve.part.png").replace(folder / "curve.png")
    return history


@dataclasses.dataclass
class _Interruption:
    """The message after Ctrl-C: whether and how the training run can be resumed."""

    options: "_Options"
    folder: Path
    resume: bool
    force: bool

    def __post_init__(self) -> None:
        self._before = self._agents()

    def _agents(self) -> set[int]:
        """The inodes of the checkpoints in the folder; each save creates another one."""
        return {path.stat().st_ino for path in self.folder.glob("*.tropism")}

    def message(self) -> str:
        for part in self.folder.glob("*.part*"):
            part.unlink(missing_ok=True)
        if self.resume or self._agents() - self._before:
            total = self.options.config.get("total_steps") if self.resume else None
            longer = "" if total is None else f" --total-steps {total}"
            return (
                f"Resume with: tropism train {self.options.id} --out {shlex.quote(str(self.folder))} --resume{longer}"
            )
        if self.force:
            return f"Nothing was saved yet, so {self.folder} is unchanged; start again with the same command."
        return "Nothing was saved yet; start again with the same command."


def _announcement(training: Any, done: int) -> str:
    """The steps to train, the network, and the expected compilation time."""
    config = training.config
    agents = "" if training.seeds == 1 else f" of each of {training.seeds} agents"
    steps = f"{config.num_updates * config.batch:,} steps{agents} in {config.num_updates:,} updates"
    resumed = f" Resuming from step {done:,}." if done else ""
    return f"{training.id}: {steps}, {training.make_algorithm().summary}.{resumed} {COMPILING}"


def _print_result(id: str, folder: Path, history: list[Any], as_json: bool) -> None:
    from tropism.train.run import CHECKPOINT

    steps, returns = history[-1]
    if as_json:
        row = {"id": id, "steps": steps, "returns": returns, "agent": str(folder / CHECKPOINT)}
        print_rows([row], as_json=True)
        return
    last = ", ".join("none ended" if value is None else f"{value:.4g}" for value in returns)
    print_text(f"{steps:,} steps. Return of the last episodes: {last}.")
    print_text(f"The agent and its curve are in {folder}/. Next: tropism evaluate {id} --policy {folder}")


def _summary(report: Any) -> str:
    mean = "no episode ended yet" if report.mean is None else f"return {report.mean:.4g}"
    error = "" if report.error is None else f" ± {report.error:.2g}"
    return f"{mean}{error}, {report.steps_per_second / 1e3:.3g} k steps/s"


class _Options(NamedTuple):
    """The command-line options of a training run; None if not given."""

    id: str
    params: dict[str, Any] | None
    arguments: dict[str, Any] | None
    seed: int | None
    seeds: int | None
    algorithm: str | None
    network: str | None
    config: dict[str, Any]


def _new_training(options: _Options) -> Any:
    from tropism.core.registry import presets
    from tropism.train.algorithm import algorithm_class
    from tropism.train.training import Training

    algorithm = algorithm_class(options.algorithm or "ppo")
    _check_names(algorithm.Config, options.config)
    preset = presets(algorithm.Config.algorithm).get(options.id, {})
    if options.network is not None:
        for name in BUILT_IN_ONLY & set(options.config):
            expected = "no value with --network: a user-defined network has its own layers"
            raise ValidationError(name, options.config[name], expected)
        preset = {name: value for name, value in preset.items() if name not in BUILT_IN_ONLY}
    config = algorithm.Config(**{**preset, **options.config})
    arguments, params = options.arguments or {}, options.params or {}
    return Training(options.id, arguments, params, config, options.seed or 0, options.seeds or 1, options.network)


def _check_names(config: Any, given: dict[str, Any]) -> None:
    known = {each.name for each in dataclasses.fields(config)}
    for name in given:
        if name not in known:
            raise ValidationError(name, given[name], f"no value: {config.algorithm} has no such hyperparameter")


def _resumed_training(path: Path, options: _Options) -> Any:
    """The training run in a checkpoint; given options must match it, except for `total_steps`."""
    from tropism.train.checkpoint import load_training
    from tropism.train.run import check_resumable

    training = load_training(path)
    given = {name: value for name, value in (options._asdict() | options.config).items() if value is not None}
    del given["config"]
    total = given.pop("total_steps", training.config.total_steps)
    stored = training._asdict() | dataclasses.asdict(training.config) | {"algorithm": training.config.algorithm}
    _check_names(training.config, options.config)
    for name, value in given.items():
        if stored[name] != value:
            raise ValidationError(name, value, f"{stored[name]!r}, as in the training run in {path.parent}")
    extended = training._replace(config=dataclasses.replace(training.config, total_steps=total))
    check_resumable(path, extended)
    return extended
