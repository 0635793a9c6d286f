"""The command assay."""

from typing import Annotated, Any

import typer
from rich.table import Table

from tropism.cli.terminal import AsJson, Seed, console, print_json


def assay(
    policy: Annotated[
        list[str],
        typer.Argument(metavar="POLICY", help="As in `tropism evaluate`: a name, or a folder of `tropism train`."),
    ],
    seed: Seed = 0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Trained agents take the most likely action.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fly from the 240 starts of Singh et al. 2023 in four plumes of PlumeNavSingh-v0, and count the successes.

    Example: tropism assay cast-and-surge runs/train/PlumeNavSingh-v0 --greedy
    """
    from tropism.envs.plume.assay import CONDITIONS, assay_env, run_assay
    from tropism.train.policies import expand_agents, resolve_policy

    names = [one for name in policy for one in expand_agents(name)]
    counts: dict[str, dict[str, Any]] = {}
    for condition in CONDITIONS:
        env = assay_env(condition)
        counts[condition.name] = {"published": list(condition.published)}
        for name in names:
            with console.status(f"{condition.name}: {name}"):
                result = run_assay(resolve_policy(name, env, env.default_params(), greedy), condition, seed)
            counts[condition.name][name] = int(result.found.sum())
    if as_json:
        return print_json({"starts": 240, "seed": seed, "found": counts})
    table = Table("plume", *names, "published agents", title="Flights of 240 that reach the source")
    for condition in CONDITIONS:
        low, high = condition.published
        table.add_row(condition.name, *(str(counts[condition.name][name]) for name in names), f"{low} to {high}")
    return console.print(table)
