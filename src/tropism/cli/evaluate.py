"""The command evaluate."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tropism.cli.interrupts import exit_now
from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Devices,
    EngineOption,
    On,
    Params,
    Seed,
    announce_duration,
    console,
    environment,
    make_folder,
    print_json,
    print_text,
    progress_bar,
)
from tropism.errors import ValidationError

Target = Annotated[
    str,
    typer.Argument(metavar="ID|MODULE:CLASS|URL", help="An id, your class, or the URL of a served environment."),
]


def evaluate(
    target: Target,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="random (the default); in plumes a strategy: random-walk, klinotaxis, run-and-tumble, cast-and-surge, "
            "counter-turning, fly; in source tracking infotaxis, space-aware-infotaxis, greedy, mean-distance, voting, "
            "most-likely-state, thompson, qmdp, belief-network, history-network; a folder of `tropism train` (FOLDER@2 "
            "is one of its agents); module:function, your function of the observation; llm:MODEL@URL. Repeatable."
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes; episode i has seed SEED + i.", min=1)] = 256,
    seed: Seed = 10_000,
    greedy: Annotated[bool, typer.Option("--greedy", help="Trained agents take the most likely action.")] = False,
    steps: Annotated[int, typer.Option(help="Maximum steps per episode, unless it is compiled.", min=1)] = 1000,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A folder for evaluation.json and plots.")] = None,
    env: Annotated[
        str | None,
        typer.Option(help="The environment behind URL: module:Class or a registered id."),
    ] = None,
    token: Annotated[str | None, typer.Option(envvar="TROPISM_TOKEN", help="Token of the server at URL.")] = None,
    engine: EngineOption = "auto",
    param: Params = None,
    arg: Arguments = None,
    on: On = None,
    devices: Devices = None,
    as_json: AsJson = False,
) -> None:
    """Run policies on the same seeded episodes and compare them.

    Example: tropism evaluate PlumeNavMeander-v0 --policy cast-and-surge --policy runs/train/PlumeNavMeander-v0 -o out
    """
    from tropism.train.policies import expand_agents, is_trained

    remote = target.startswith(("http://", "https://"))
    if env is not None and not remote:
        raise ValidationError("env", env, "no --env: it is only for the URL of a served environment")
    names = [one for name in policy or ["random"] for one in expand_agents(name)]
    if (param or arg) and remote:
        raise ValidationError(
            "param", [*(param or []), *(arg or [])], "none: pass them to `tropism serve` and give its URL"
        )
    if greedy and not any(is_trained(name) for name in names):
        raise ValidationError("greedy", True, "a trained policy")
    _check_where(remote, on, devices, engine)
    if out is not None:
        make_folder(out)  # before the episodes run
    if remote:
        local = _local_environment(target, env)
        results = [_evaluate_remotely(target, local, name, greedy, token, seed, episodes, steps) for name in names]
    else:
        local = environment(target, param, arg)
        with _executor(on) as executor:
            results = [
                _evaluate_locally(*local, name, greedy, seed, episodes, steps, executor, devices, engine)
                for name in names
            ]
    if out is not None:
        _save(out, target, *(local or (None, None)), results)
    if as_json:
        print_json(to_json(target, results))
        return
    print_evaluations(results)
    if out is not None:
        print_text(f"Results and plots are in {out}/.")


def _check_where(remote: bool, on: str | None, devices: str | None, engine: str) -> None:
    if engine != "auto" and remote:
        raise ValidationError("engine", engine, "no --engine with a URL: pass it to `tropism serve`")
    if engine == "native" and on is not None:
        raise ValidationError("engine", engine, "auto or xla with --on, which runs compiled batches")
    if on is not None and (remote or devices is not None):
        raise ValidationError("on", on, "no --on with --devices or the URL of a served environment")
    if devices is not None and remote:
        raise ValidationError("devices", devices, "no --devices with the URL of a served environment")


def _executor(on: str | None) -> AbstractContextManager[Any]:
    """One executor for all policies; None if there is no --on."""
    if on is None:
        return nullcontext()
    from tropism.scale.executor import use_executor

    return use_executor(on)


def _evaluate_locally(
    env: Any,
    params: Any,
    name: str,
    greedy: bool,
    seed: int,
    episodes: int,
    steps: int,
    on: Any,
    devices: Any,
    engine: Any,
) -> Any:
    from tropism.train.evaluation import evaluate as run
    from tropism.train.evaluation import is_compiled, num_batches
    from tropism.train.policies import resolve_policy

    policy = resolve_policy(name, env, params, greedy)
    if on is not None:
        return _evaluate_on(on, name, env, params, policy, seed, episodes, steps)
    start = partial(run, name, env, params, policy, seed, episodes, devices=devices, engine=engine, max_steps=steps)
    if not is_compiled(env, policy) or num_batches(episodes) > 1 or engine == "native":
        return _with_progress(name, episodes, start)
    with console.status(f"{escape(name)}: {episodes} episodes"):
        return start()


def _evaluate_on(on: Any, name: str, env: Any, params: Any, policy: Any, seed: int, episodes: int, steps: int) -> Any:
    """Evaluate on an executor; after Ctrl-C, print the results so far."""
    from tropism.scale import EvaluationInterruptedError, evaluate

    def run(show: Callable[[int], None]) -> Any:
        return evaluate(name, env, params, policy, seed, episodes, show, on=on, max_steps=steps)

    try:
        return _with_progress(name, episodes, run)
    except EvaluationInterruptedError as interruption:
        if interruption.partial is None:
            exit_now("Interrupted. No part was complete.")
        print_evaluations([interruption.partial])
        console.file.flush()
        exit_now(f"Interrupted. These are the first {len(interruption.partial.returns):,} of {episodes:,} episodes.")


def _local_environment(url: str, env: str | None) -> tuple[Any, Any] | None:
    """The served environment, created in this process: the given one, or that of the id in the URL."""
    from tropism.core.registry import make, registered

    if env is not None:
        return environment(env, None, None)
    id = url.rstrip("/").rpartition("/envs/")[2]
    return make(id) if id in {spec.id for spec in registered()} else None


def _evaluate_remotely(
    url: str, local: Any, name: str, greedy: bool, token: str | None, seed: int, episodes: int, steps: int
) -> Any:
    """Evaluate on a server. `local` is its environment, created in this process, or None."""
    from tropism.client import Client
    from tropism.train.evaluation import evaluate_episodes
    from tropism.train.policies import resolve_policy, resolve_standalone
    from tropism.train.runner import RemoteRunner

    if local is None:
        policy, known = resolve_standalone(name), ()
    else:
        env, params = local
        policy, known = resolve_policy(name, env, params, greedy), (env.observation_space(params), env.pure)
    with Client(url, token=token) as client:
        run = partial(evaluate_episodes, name, RemoteRunner(client, *known), policy, seed, episodes, steps)
        return _with_progress(name, episodes, run)


def _with_progress(name: str, episodes: int, run: Callable[[Callable[[int], None]], Any]) -> Any:
    """Run with a progress bar; after the second progress report, announce the remaining time."""
    measured: list[tuple[float, int]] = []

    def show(done: int) -> None:
        bar.update(task, completed=done)
        measured.append((time.perf_counter(), done))
        if len(measured) == 2:
            (before, first), (now, second) = measured
            announce_duration(name, (now - before) / max(1, second - first) * (episodes - second))

    with progress_bar() as bar:
        task = bar.add_task(name, total=episodes)
        return run(show)


def to_json(target: str, results: list[Any]) -> dict[str, Any]:
    from tropism.train.evaluation import Interval

    rows = [result.summary() for result in results]
    for row in rows:
        row |= {name: value._asdict() for name, value in row.items() if isinstance(value, Interval)}
    return {"target": target, "policies": rows}


def _save(out: Path, target: str, env: Any, params: Any, results: list[Any]) -> None:
    from tropism.train import pictures

    (out / "evaluation.json").write_text(json.dumps(to_json(target, results), indent=2) + "\n")
    pictures.draw_evaluation(target, env, params, results, out / "evaluation.png")
    if all(each.search is not None for each in results):
        pictures.draw_success_over_time(results, out / "found.png")
    if all(each.search is not None and each.search.start_distance is not None for each in results):
        pictures.draw_success_by_distance(results, out / "distance.png")


def print_evaluations(results: list[Any]) -> None:
    """Print a row per policy, with 95 % intervals."""
    names = {
        "success": "found the source",
        "time_to_find": "steps to find it",
        "path_efficiency": "path efficiency",
        "time_efficiency": "T_min/T",
        "on_odour": "on odour",
        "return": "return",
        "steps": "steps",
        "not_found": "P(not found)",
    }
    rows = [result.summary() for result in results]
    table = Table(caption=f"mean [95 % interval] over the same {rows[0]['episodes']} episodes")
    table.add_column("policy")
    if "success" in rows[0]:
        del names["return"]  # success matters more than the return of a search
    shown = [name for name in names if any(name in row for row in rows)]
    for name in shown:
        table.add_column(names[name], justify="right")
    for row in rows:
        table.add_row(escape(row["policy"]), *(_cell(name, row.get(name)) for name in shown))
    console.print(table)


FORMATS = {  # of a mean and its interval; short, so that four columns fit a terminal
    "success": lambda mean, low, high: f"{mean:.1%} [{100 * low:.0f}, {100 * high:.0f}]",
    "time_to_find": "{:.1f} [{:.0f}, {:.0f}]".format,
    "path_efficiency": "{:.2f} [{:.2f}, {:.2f}]".format,
    "time_efficiency": lambda mean, *_: f"{mean:.2f}",
    "on_odour": lambda mean, *_: f"{mean:.0%}",
}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2g}"
    return escape(FORMATS.get(name, "{:.4g} [{:.4g}, {:.4g}]".format)(*value))
