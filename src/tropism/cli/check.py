"""The command check."""

import dataclasses

import typer

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Id,
    Params,
    Seed,
    environment,
    print_engines,
    print_json,
    print_text,
    progress_bar,
)


def check(
    id: Id,
    param: Params = None,
    arg: Arguments = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Check an environment against the laws that every environment must obey; exit code 1 if one is violated.

    Example: tropism check my_package.maze:Maze
    """
    from tropism.check import check_environment
    from tropism.check.law_error import attempt
    from tropism.core.engines import describe_engines

    env, params = environment(id, param, arg)
    with progress_bar() as bar:
        task = bar.add_task("", total=None)

        def show(law: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"checking {law}")

        report = check_environment(env, params, seed=seed, progress=show)
    engines: dict[str, str] = {}
    failure = attempt(lambda: engines.update(describe_engines(env, params)))  # a broken environment may have none
    if failure is not None:
        engines = {"sessions": f"none ({' '.join(failure.message.split())})"}
    if as_json:
        print_json({"laws": [dataclasses.asdict(result) for result in report.results], "engines": engines})
    else:
        print_text(str(report))
        print_engines(engines)
    raise typer.Exit(0 if report.ok else 1)
