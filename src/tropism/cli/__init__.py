"""The command line: one file per command."""

import sys
from importlib import import_module
from typing import Annotated

import typer
from rich.markup import escape

from tropism import __version__
from tropism.cli.assay import assay
from tropism.cli.bench import bench
from tropism.cli.check import check
from tropism.cli.demo import demo
from tropism.cli.evaluate import evaluate
from tropism.cli.interrupts import INTERRUPTED, Interrupts
from tropism.cli.journal import check as check_journal
from tropism.cli.journal import export, forget, info, salvage
from tropism.cli.list import list_environments
from tropism.cli.mcp import mcp
from tropism.cli.minari import export_to_minari, import_from_minari
from tropism.cli.plume import stats
from tropism.cli.record import record
from tropism.cli.render import render
from tropism.cli.replay import replay
from tropism.cli.rollout import rollout
from tropism.cli.sandbox import examine_sandbox
from tropism.cli.serve import serve
from tropism.cli.show import show
from tropism.cli.terminal import errors
from tropism.cli.tracebacks import format_user_error
from tropism.cli.train import TrainCommand, train
from tropism.errors import MissingExtraError, TropismError

app = typer.Typer(
    help="Reinforcement-learning environments as pure functions.",
    no_args_is_help=True,
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
sandbox = typer.Typer(help="Test the sandbox that runs agents' code.", no_args_is_help=True)
app.add_typer(sandbox, name="sandbox")
journal = typer.Typer(help="Inspect and repair the journal of a stopped server.", no_args_is_help=True)
app.add_typer(journal, name="journal")
minari = typer.Typer(help="Convert recordings to Minari datasets and back.", no_args_is_help=True)
app.add_typer(minari, name="minari")
plume = typer.Typer(help="Measure the statistics of plumes.", no_args_is_help=True)
app.add_typer(plume, name="plume")
app.command("list")(list_environments)
for command in (show, check, rollout, render, record, replay, evaluate, assay, serve, mcp, bench, demo):
    app.command()(command)


def _add_train() -> None:
    """Add the command train; without the extra of that name it reports what to install."""
    try:
        import_module("tropism.train")
    except MissingExtraError as missing:
        error = missing
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}

        @app.command("train", help=str(error), context_settings=anything, add_help_option=False)
        def unavailable() -> None:  # pyright: ignore[reportUnusedFunction]
            raise error
    else:
        app.command("train", cls=TrainCommand, help=train.__doc__)(lambda: None)


_add_train()
for command in (info, check_journal, salvage, forget, export):
    journal.command(command.__name__)(command)
sandbox.command("doctor")(examine_sandbox)
minari.command("export")(export_to_minari)
minari.command("import")(import_from_minari)
plume.command()(stats)


@app.callback()
def about(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Reinforcement-learning environments as pure functions."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the current folder can be imported, as with `python -m`
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line.

    Exit codes: 2 for invalid input (with a one-line message), 1 for an exception in user code, 130 for Ctrl-C.
    """
    interrupts = Interrupts()
    try:
        with interrupts.handle_signals():
            _run()
    except (SystemExit, KeyboardInterrupt):
        if not interrupts.received:
            raise
        errors.print("Interrupted.")
        sys.exit(INTERRUPTED)


def _run() -> None:
    try:
        app()
    except TropismError as error:
        errors.print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except Exception as error:
        message = format_user_error(error)
        if message is None:
            raise
        errors.print("[red]error:[/]", end=" ")
        sys.stderr.write(message)  # unwrapped: carets point at columns
        sys.exit(1)
