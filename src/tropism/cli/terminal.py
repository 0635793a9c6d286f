"""Shared by the commands: options, tables, progress bars, and environments by name."""

import json
import os
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tropism.errors import ObservationWarning, ValidationError

console = Console(emoji=False)  # `:Two:` in `module:Two:` is not an emoji
MIN_ANNOUNCED = 10.0  # seconds; shorter durations are not announced
errors = Console(stderr=True, emoji=False)

Id = Annotated[
    str, typer.Argument(metavar="ID|MODULE:CLASS", help="A registered id (see `tropism list`), or your class.")
]
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|MODULE:CLASS", help="Default: all registered ids. A class is served under its name."),
]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=NUMBER", help="Set a param (see `tropism show`); repeatable."),
]
Arguments = Annotated[
    list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="Set a constructor argument; repeatable.")
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="random; in plumes a strategy: random-walk, klinotaxis, run-and-tumble, cast-and-surge, counter-turning, "
        "fly; a folder of `tropism train`; module:function, your function of the observation.",
    ),
]
Greedy = Annotated[bool, typer.Option("--greedy", help="A trained agent takes the most likely action.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Fps = Annotated[
    float | None,
    typer.Option(help="Frames per second; 25 by default, fewer for a short episode.", min=0.1, max=100),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder of recordings.")]
Processes = Annotated[
    bool,
    typer.Option(
        "--processes",
        help="Run each session of a host environment that may be slow (blocking) in its own process, so that a crash "
        "in native code does not end the server. Costs a fork per reset, a pipe round trip per step, and memory.",
    ),
]
EngineName = Literal["auto", "native", "xla"]
EngineOption = Annotated[
    EngineName, typer.Option(help="Engine of pure environments; auto: native if verified to give the bits of XLA.")
]
Devices = Annotated[
    str | None, typer.Option(metavar="all", help="Spread each batch over all devices; by default it runs on one.")
]
On = Annotated[
    str | None,
    typer.Option(
        metavar="threads|processes|ray[://HOST:PORT]",
        help="Run on several cores or machines, with the same results; threads:N and processes:N use N workers. "
        "Default: this process alone.",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0)]


def environment(target: str, param: list[str] | None, arg: list[str] | None) -> tuple[Any, Any]:
    """The environment and params of an id or `module:Class`."""
    from tropism.core.resolve import resolve_environment

    return resolve_environment(target, parse_pairs("--param", param), parse_pairs("--arg", arg))


def id_of(target: str) -> str:
    """The id of a target; a class without an id is registered under its name."""
    from tropism.core.registry import id_of_factory, register

    if ":" not in target:
        return target
    factory = load_class(target)
    known = id_of_factory(factory)  # the module may have registered it
    if known is None:
        register(factory.__name__, factory)
    return known or factory.__name__


def load_class(target: str) -> Any:
    """Import a user's `module:Class`."""
    from tropism.core.resolve import resolve

    return resolve("target", target, "module:Class")


def make_folder(path: Path) -> Path:
    """Create the folder if needed, and check that it is writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValidationError("out", str(path), f"a folder that can be created ({error.strerror})") from None
    if not os.access(path, os.W_OK):
        raise ValidationError("out", str(path), "a writable folder")
    return path


@contextmanager
def plain_warnings() -> Generator[None]:
    """Show Tropism's own warnings without a source location."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_plainly(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, ObservationWarning):
                return show(message, category, *place, **more)
            return errors.print(f"[yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True)

        warnings.showwarning = show_plainly
        yield


def announce_duration(name: str, seconds: float) -> None:
    """Print how long a command will take, unless it is short."""
    if seconds < MIN_ANNOUNCED:
        return
    minutes = seconds / 60
    short = f"{round(seconds, -1):.0f} seconds" if minutes < 1.5 else f"{minutes:.0f} minutes"
    text = short if minutes < 90 else f"{minutes / 60:.1f} hours"
    print_text(f"{name}: about {text} on this machine.", errors)


def print_text(text: str, to: Console = console) -> None:
    """Print text as it is: no markup, no highlighting, and lines are not broken."""
    to.print(text, highlight=False, markup=False, soft_wrap=True)


def print_engines(engines: dict[str, str]) -> None:
    """Print a line per engine: what runs on it, and the reason if it is not native."""
    uses: dict[str, list[str]] = {}
    for use, engine in engines.items():
        uses.setdefault(engine, []).append(use)
    for engine, names in uses.items():
        print_text(f"engine of {', '.join(names)}: {engine}")


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def parse_pairs(option: str, texts: list[str] | None) -> dict[str, Any]:
    """The values of a repeatable option NAME=VALUE."""
    return dict(_parse_pair(option, text) for text in texts or [])


def _parse_pair(option: str, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValidationError(option, text, "NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def progress_bar() -> Progress:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=errors)


def print_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows if len(rows) != 1 else rows[0])
        return
    table = Table()
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right", overflow="fold")
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value / 1e6:.1f} M" if abs(value) >= 1e6 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
