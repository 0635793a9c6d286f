"""The command check."""

import dataclasses
import json
from typing import Annotated

import typer

from tropism.cli.terminal import Arguments, AsJson, Params, Seed, console, environment, progress_bar


def check(
    target: Annotated[str, typer.Argument(metavar="ID|MODULE:CLASS", help="A registered id, or your class.")],
    param: Params = None,
    arg: Arguments = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Check that an environment follows the contract; exit code 1 if it does not.

    Example: tropism check my_package.maze:Maze
    """
    from tropism.check import check_environment
    from tropism.core.native.choice import choose_engine

    env, params = environment(target, param, arg)
    with progress_bar() as bar:
        task = bar.add_task("", total=None)

        def show(law: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"checking {law}")

        report = check_environment(env, params, seed=seed, progress=show)
    if as_json:
        print(json.dumps([dataclasses.asdict(result) for result in report.results], indent=2))
    else:
        console.print(str(report), highlight=False, markup=False, soft_wrap=True)
        if env.pure and report.ok:
            console.print(f"engine   {choose_engine(env, params)}", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(0 if report.ok else 1)
