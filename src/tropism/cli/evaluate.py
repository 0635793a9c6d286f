"""The command evaluate."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Params,
    Seed,
    announce_duration,
    console,
    environment,
    made_folder,
    progress_bar,
)
from tropism.errors import ValidationError

Target = Annotated[
    str,
    typer.Argument(metavar="ID|MODULE:CLASS|URL", help="An id, your class, or the address of a served environment."),
]


def evaluate(
    target: Target,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="random; random-walk, klinotaxis, run-and-tumble, cast-and-surge; a folder of `tropism train`; "
            "FOLDER@2, one of its agents; module:function of the observation; llm:MODEL@URL. Repeatable."
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes; number i has the seed SEED + i.", min=1)] = 256,
    seed: Seed = 10_000,
    greedy: Annotated[bool, typer.Option("--greedy", help="Trained agents take the likeliest action.")] = False,
    steps: Annotated[int, typer.Option(help="Steps of an episode at most, where it is not compiled.", min=1)] = 1000,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for evaluation.json and evaluation.png.")
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(help="Of a served environment of your own: its class, module:Class, or a registered id."),
    ] = None,
    token: Annotated[str | None, typer.Option(envvar="TROPISM_TOKEN", help="Of the server that URL names.")] = None,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Let policies play the same seeded episodes, and compare them.

    Example: tropism evaluate PlumeNavMeander-v0 --policy cast-and-surge --policy runs/train/PlumeNavMeander-v0 -o out
    """
    from tropism.train.policies import each, is_trained

    remote = target.startswith(("http://", "https://"))
    if env is not None and not remote:
        raise ValidationError("env", env, "none: --env is for the address of a served environment")
    names = [one for name in policy or ["random"] for one in each(name)]
    if (param or arg) and (remote or any(name.startswith("llm:") for name in names)):
        raise ValidationError(
            "param", [*(param or []), *(arg or [])], "none: start a server with them and give its URL"
        )
    if greedy and not any(is_trained(name) for name in names):
        raise ValidationError("greedy", True, "a policy that was trained")
    if out is not None:
        made_folder(out)  # before the episodes are played
    if remote:
        known = _known(target, env)
        results = [_there(target, known, name, greedy, token, seed, episodes, steps) for name in names]
    else:
        known = environment(target, param, arg)
        results = [_here(target, *known, name, greedy, seed, episodes, steps) for name in names]
    if out is not None:
        _save(out, target, *(known or (None, None)), results)
    if as_json:
        print(json.dumps(figures(target, results), indent=2))
        return
    print_evaluations(results)
    if out is not None:
        console.print(f"Figures and pictures are in {escape(str(out))}/.")


def _here(id: str, env: Any, params: Any, name: str, greedy: bool, seed: int, episodes: int, steps: int) -> Any:
    from tropism.core.session.session import Session
    from tropism.plume.strategies import Strategy
    from tropism.train.evaluate import evaluate as run
    from tropism.train.evaluate import num_parts, play
    from tropism.train.language_model import LanguageModel
    from tropism.train.policies import Solo, named
    from tropism.train.runner import Here

    who = named(name, env, params, greedy)
    if isinstance(who, LanguageModel):
        return _launched(id, name, who, seed, episodes, steps)
    if isinstance(who, Strategy) and env.traced:
        if num_parts(episodes) > 1:
            return _shown(name, episodes, lambda show: run(name, env, params, who, seed, episodes, show))
        with console.status(f"{escape(name)}: {episodes} episodes"):
            return run(name, env, params, who, seed, episodes)
    player = Solo(who) if isinstance(who, Strategy) else who
    with Session(env, params) as session:
        return _shown(name, episodes, lambda show: play(name, Here(session), player, seed, episodes, steps, show))


def _launched(id: str, name: str, who: Any, seed: int, episodes: int, steps: int) -> Any:
    """A language model plays over a server, which speaks to it in words."""
    from tropism.client import Client
    from tropism.train.evaluate import play
    from tropism.train.runner import There

    with Client.launch(id) as client:
        return _shown(name, episodes, lambda show: play(name, There(client), who, seed, episodes, steps, show))


def _known(url: str, env: str | None) -> tuple[Any, Any] | None:
    """The served environment as it can be made here: the one given, or that of the id in the address."""
    from tropism.core.registry import make, registered

    if env is not None:
        return environment(env, None, None)
    id = url.rstrip("/").rpartition("/envs/")[2]
    return make(id) if id in {spec.id for spec in registered()} else None


def _there(
    url: str, known: Any, name: str, greedy: bool, token: str | None, seed: int, episodes: int, steps: int
) -> Any:
    """Evaluate on a server. `known` is its environment as made here, or None."""
    from tropism.client import Client
    from tropism.plume.strategies import Strategy
    from tropism.train.evaluate import play
    from tropism.train.policies import Solo, free, named
    from tropism.train.runner import There

    who = free(name) if known is None else named(name, known[0], known[1], greedy)
    player = Solo(who) if isinstance(who, Strategy) else who
    with Client(url, token=token) as client:
        table = There(client, None if known is None else known[0].observation_space(known[1]))
        return _shown(name, episodes, lambda show: play(name, table, player, seed, episodes, steps, show))


def _shown(name: str, episodes: int, run: Callable[[Callable[[int], None]], Any]) -> Any:
    """Show the episodes that are done, and how long the others take once two measurements say it."""
    measured: list[tuple[float, int]] = []

    def show(done: int) -> None:
        bar.update(task, completed=done)
        measured.append((time.perf_counter(), done))
        if len(measured) == 2:
            (before, first), (now, second) = measured
            announce_duration(name, (now - before) / (second - first) * (episodes - second))

    with progress_bar() as bar:
        task = bar.add_task(name, total=episodes)
        return run(show)


def figures(target: str, results: list[Any]) -> dict[str, Any]:
    from tropism.train.evaluate import Interval

    rows = [result.summary() for result in results]
    for row in rows:
        row |= {name: value._asdict() for name, value in row.items() if isinstance(value, Interval)}
    return {"target": target, "policies": rows}


def _save(out: Path, target: str, env: Any, params: Any, results: list[Any]) -> None:
    from tropism.train import pictures

    (out / "evaluation.json").write_text(json.dumps(figures(target, results), indent=2) + "\n")
    pictures.evaluation(target, env, params, results, out / "evaluation.png")


def print_evaluations(results: list[Any]) -> None:
    """A row for each policy; intervals are of 95 %."""
    names = {
        "success": "found the source",
        "time_to_find": "steps to find it",
        "path_efficiency": "path efficiency",
        "return": "return",
        "steps": "steps",
    }
    rows = [result.summary() for result in results]
    table = Table(caption=f"mean [95 % interval] over the same {rows[0]['episodes']} episodes")
    table.add_column("policy")
    if "success" in rows[0]:
        del names["return"]  # what a search is about is whether it succeeds
    shown = [name for name in names if any(name in row for row in rows)]
    for name in shown:
        table.add_column(names[name], justify="right")
    for row in rows:
        table.add_row(escape(row["policy"]), *(_cell(name, row.get(name)) for name in shown))
    console.print(table)


FORMS = {  # of a mean and its interval; short, so that four columns fit a terminal
    "success": lambda mean, low, high: f"{mean:.1%} [{100 * low:.0f}, {100 * high:.0f}]",
    "time_to_find": "{:.1f} [{:.0f}, {:.0f}]".format,
    "path_efficiency": "{:.2f} [{:.2f}, {:.2f}]".format,
}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return escape(FORMS.get(name, "{:.4g} [{:.4g}, {:.4g}]".format)(*value))
