"""What the commands share: options, tables, progress bars, and how an environment is named."""

import json
import os
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tropism.errors import ObservationWarning, ValidationError

console = Console(emoji=False)  # `module:Two:` is a name
WORTH_SAYING = 10.0  # seconds
errors = Console(stderr=True, emoji=False)

Id = Annotated[
    str, typer.Argument(metavar="ID|MODULE:CLASS", help="A registered id (see `tropism list`), or your class.")
]
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID|MODULE:CLASS]...", help="Default: every registered one. A class goes by its name."),
]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="NAME=NUMBER", help="Change a number; repeatable.")
]
Arguments = Annotated[
    list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="A constructor argument; repeatable.")
]
PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="random; random-walk, klinotaxis, run-and-tumble, cast-and-surge; a folder of `tropism train`; "
        "module:function of the observation.",
    ),
]
Greedy = Annotated[bool, typer.Option("--greedy", help="A trained agent takes the likeliest action.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Fps = Annotated[
    float | None,
    typer.Option(help="Pictures a second; 25 by default, fewer for a short episode.", min=0.1, max=100),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder with recordings.")]
Processes = Annotated[
    bool,
    typer.Option(
        "--processes",
        help="Each session of a host environment that blocks in a process of its own: a crash in native code ends "
        "that process, not the server. Costs a fork at each reset, a pipe at each step, and memory.",
    ),
]
Seed = Annotated[int, typer.Option(help="Where all randomness comes from.", min=0)]


def environment(target: str, param: list[str] | None, arg: list[str] | None) -> tuple[Any, Any]:
    """The environment that an id or `module:Class` names."""
    from tropism.core.resolve import environment_of

    params = dict(pair("--param", text) for text in param or [])
    arguments = dict(pair("--arg", text) for text in arg or [])
    return environment_of(target, params, arguments)


def id_of(target: str) -> str:
    """The id of a target; a class that has none yet is registered under its name."""
    from tropism.core.registry import id_made_by, register

    if ":" not in target:
        return target
    made = load(target)
    known = id_made_by(made)  # the module may have registered it
    if known is None:
        register(made.__name__, made)
    return known or made.__name__


def load(target: str) -> Any:
    """A class of the user's own."""
    from tropism.core.resolve import imported

    return imported("target", target, "module:Class")


def made_folder(path: Path) -> Path:
    """The folder, which exists now and can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValidationError("out", str(path), f"a folder that can be made ({error.strerror})") from None
    if not os.access(path, os.W_OK):
        raise ValidationError("out", str(path), "a folder that can be written to")
    return path


@contextmanager
def plain_warnings() -> Generator[None]:
    """Show Tropism's own warnings without the place in its code that they come from."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_plainly(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, ObservationWarning):
                return show(message, category, *place, **more)
            return errors.print(f"[yellow]warning:[/] {escape(str(message))}", highlight=False, soft_wrap=True)

        warnings.showwarning = show_plainly
        yield


def announce_duration(name: str, seconds: float) -> None:
    """Say how long a command is going to take, where that is worth a line."""
    if seconds < WORTH_SAYING:
        return
    minutes = seconds / 60
    short = f"{round(seconds, -1):.0f} seconds" if minutes < 1.5 else f"{minutes:.0f} minutes"
    words = short if minutes < 90 else f"{minutes / 60:.1f} hours"
    errors.print(f"{name}: about {words} on this machine.", highlight=False, markup=False, soft_wrap=True)


def pair(option: str, text: str) -> tuple[str, Any]:
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
        print(json.dumps(rows if len(rows) != 1 else rows[0], indent=2))
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
