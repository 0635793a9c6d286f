"""The command check."""

import dataclasses

import typer

from tropism.cli.terminal import Arguments, AsJson, Id, Params, Seed, environment, print_json, print_text, progress_bar


def check(
    id: Id,
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

    env, params = environment(id, param, arg)
    with progress_bar() as bar:
        task = bar.add_task("", total=None)

        def show(law: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"checking {law}")

        report = check_environment(env, params, seed=seed, progress=show)
    if as_json:
        print_json([dataclasses.asdict(result) for result in report.results])
    else:
        print_text(str(report))
        if env.pure and report.ok:
            print_text(f"engine   {choose_engine(env, params)}")
    raise typer.Exit(0 if report.ok else 1)
