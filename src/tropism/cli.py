"""The command line: list, check, rollout, render, train, serve, mcp, bench, demo, sandbox."""

import dataclasses
import importlib
import inspect
import json
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tropism import __version__
from tropism.errors import TropismError, ValidationError

app = typer.Typer(
    help="Reinforcement-learning environments as pure functions.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
sandbox = typer.Typer(help="Where code of an agent is run.", no_args_is_help=True)
app.add_typer(sandbox, name="sandbox")
console = Console()
errors = Console(stderr=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="A registered id (see `tropism list`).")]
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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


class Level(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Seed = Annotated[int, typer.Option(help="Where all randomness comes from.", min=0)]


@app.callback()
def about(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Reinforcement-learning environments as pure functions."""
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's mistake ends in one message and exit code 2."""
    try:
        app()
    except TropismError as error:
        errors.print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)


@app.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """Every environment there is.

    Example: tropism list
    """
    from tropism.core.registry import absent, registered

    specs, missing = registered(), absent()
    if as_json:
        rows = [{"id": s.id, "traced": s.traced, "source": s.source, "summary": s.summary} for s in specs]
        print(json.dumps([*rows, *({"id": id, "absent": why} for id, why in missing.items())], indent=2))
        return
    table = Table("id", "kind", "summary")
    for spec in specs:
        table.add_row(spec.id, "pure" if spec.traced else "host", spec.summary)
    for id, reason in missing.items():
        table.add_row(id, "[red]absent[/]", escape(reason))
    console.print(table)


@app.command()
def check(
    target: Annotated[str, typer.Argument(metavar="ID|MODULE:CLASS", help="A registered id, or your class.")],
    param: Params = None,
    arg: Arguments = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Check an environment against the law; exit code 1 if it breaks one.

    Example: tropism check my_package.maze:Maze
    """
    from tropism.core.check import check_environment

    env, params = _environment(target, param, arg)
    with _progress() as bar:
        task = bar.add_task("", total=None)

        def show(law: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"checking {law}")

        report = check_environment(env, params, seed=seed, progress=show)
    if as_json:
        print(json.dumps([dataclasses.asdict(result) for result in report.results], indent=2))
    else:
        console.print(str(report), highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def rollout(
    id: Id,
    envs: Annotated[int, typer.Option(help="Environments side by side.", min=1)] = 1024,
    steps: Annotated[int, typer.Option(help="Steps of each.", min=1)] = 1000,
    seed: Seed = 0,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Step many copies of an environment with random actions, compiled.

    Example: tropism rollout CartPole-v1 --envs 4096 --param gravity=3.7
    """
    import jax

    from tropism.core.rollout import random_policy
    from tropism.core.rollout import rollout as run

    env, params = _environment(id, param, arg)
    with _progress() as bar:
        task = bar.add_task(f"{id}: compiling", total=steps)
        start = time.perf_counter()

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=f"{id}: {envs} environments")

        policy = random_policy(env, params)
        result = run(env, policy, jax.random.key(seed), envs, steps, params=params, collect=False, progress=report)
        seconds = time.perf_counter() - start
    episodes = result.episodes
    row = {
        "id": id,
        "envs": envs,
        "steps": envs * steps,
        "episodes": int(episodes.episodes),
        "mean_return": float(episodes.mean_return),
        "mean_length": float(episodes.mean_length),
        "seconds": seconds,
    }
    _show([row], as_json)


@app.command()
def render(
    id: Id,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .gif, .mp4 or .png file (the last picture).")],
    steps: Annotated[int, typer.Option(help="Steps at most.", min=0)] = 200,
    seed: Seed = 0,
    param: Params = None,
    arg: Arguments = None,
) -> None:
    """Film one episode with random actions.

    Example: tropism render PlumeNavPuffs-v0 --steps 100 -o puffs.gif --arg trail=100
    """
    from tropism import film
    from tropism.core.session import Session

    film.check_path(out)
    session = Session(*_environment(id, param, arg))
    with _progress() as bar:
        pictures = film.frames(session, film.random_actions(seed), steps, seed)
        film.save(out, iter(bar.track(pictures, total=steps + 1, description=id)))
    console.print(
        f"{escape(str(out))}: {session.step_count} steps, return {session.total_reward:.3g}, {session.lifecycle.value}"
    )


def _takes_config(command: Callable[..., None]) -> Callable[..., None]:
    """Every field of PPO's `Config` as an option; None stands for the preset's or the default."""
    from tropism.train.config import Config

    kinds = get_type_hints(Config)
    own = [p for p in inspect.signature(command).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                kinds[each.name] | None, typer.Option(help=f"{each.metadata['help']} Default {each.default}.")
            ],
        )
        for each in dataclasses.fields(Config)
    ]
    every = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + options
    command.__signature__ = inspect.Signature(every)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {p.name: p.annotation for p in every}
    return command


@app.command()
@_takes_config
def train(
    id: Id,
    out: Annotated[Path | None, typer.Option(help="Where the agent goes; runs/train/ID by default.")] = None,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Agents trained side by side.", min=1)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in --out, exactly.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the agent that is in --out.")] = False,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
    **config: Any,
) -> None:
    """Train an agent with PPO, compiled; numbers not given come from the environment's preset.

    Example: tropism train CartPole-v1 --seeds 4
    """
    from tropism.train.checkpoint import Recipe
    from tropism.train.config import Config
    from tropism.train.presets import PRESETS
    from tropism.train.run import CHECKPOINT, Report
    from tropism.train.run import train as run

    given = {name: value for name, value in config.items() if value is not None}
    params = dict(_pair("--param", text) for text in param or [])
    arguments = dict(_pair("--arg", text) for text in arg or [])
    recipe = Recipe(id, arguments, params, Config(**PRESETS.get(id, {}) | given), seed, seeds)
    folder = out or Path("runs") / "train" / id
    if (folder / CHECKPOINT).exists() and not resume and not force:
        raise ValidationError("out", str(folder), "a folder without an agent, or --resume, or --force to replace it")
    recipe.trainer()  # whatever is wrong with the numbers is said now
    with _progress() as bar:
        task = bar.add_task(f"{id}: compiling", total=recipe.config.num_updates * recipe.config.batch)

        def show(report: Report) -> None:
            mean = "no episode ended yet" if report.mean is None else f"return {report.mean:.4g}"
            speed = f"{report.steps_per_second / 1e3:.0f} k steps/s"
            bar.update(task, completed=report.steps, total=report.total_steps, description=f"{id}: {mean}, {speed}")

        _, history = run(recipe, folder, show, resume)
    steps, returns = history[-1]
    _show([{"id": id, "steps": steps, "returns": returns, "agent": str(folder / CHECKPOINT)}], as_json)


@app.command()
def serve(
    ids: Ids = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        list[str] | None,
        typer.Option(envvar="TROPISM_TOKEN", help="What callers must send as Bearer token; repeatable, one for each."),
    ] = None,
    max_sessions: Annotated[int, typer.Option(help="Sessions open at once.", min=1)] = 10_000,
    max_sessions_per_token: Annotated[int, typer.Option(help="Sessions open at once, of one token.", min=1)] = 10_000,
    idle_timeout: Annotated[
        float, typer.Option(help="Seconds until an idle session is put away; it can be resumed.")
    ] = 3600,
    max_body: Annotated[int, typer.Option(help="Largest request, in bytes.", min=1)] = 2**20,
    allow_host: Annotated[list[str] | None, typer.Option(help="A name this server is called by; repeatable.")] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web page's origin that may call; repeatable.")
    ] = None,
    param: Params = None,
    arg: Arguments = None,
    log_level: Annotated[Level, typer.Option(help="What is logged, as JSON lines on standard error.")] = Level.warning,
) -> None:
    """Serve environments over HTTP, WebSocket and MCP; the first one answers at / too.

    Example: tropism serve Echo-v0 ConnectFour-v0 --port 8000
    Example: tropism serve ConnectFour-v0 --arg "opponent=minimax(3)"
    """
    from tropism.serve.app import App
    from tropism.serve.server import log_to_stderr, missing, run, served
    from tropism.serve.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        tokens=tuple(token or ()),
        max_sessions=max_sessions,
        max_sessions_per_token=max_sessions_per_token,
        idle_timeout=idle_timeout,
        max_body=max_body,
        allowed_hosts=tuple(allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
    )
    log_to_stderr(log_level.value)
    chosen = [_id(target) for target in ids or ()]
    params = dict(_pair("--param", text) for text in param or [])
    environments = served(chosen, params, **dict(_pair("--arg", text) for text in arg or []))

    def ready(url: str) -> None:
        some = "1 environment" if len(environments) == 1 else f"{len(environments)} environments"
        print(f"serving {some} at {url} ({'' if token else f'try {url}/docs; '}Ctrl-C stops)", flush=True)

    run(App(environments, settings, absent=missing(ids or ())), ready)


@app.command()
def mcp(ids: Ids = None) -> None:
    """Speak MCP on standard input and output, for agents that start their own tools.

    Example: tropism mcp ConnectFour-v0
    """
    import asyncio

    from tropism.serve.app import App
    from tropism.serve.mcp import serve_stdio
    from tropism.serve.server import log_to_stderr, served

    log_to_stderr("warning")
    asyncio.run(serve_stdio(App(served(_id(target) for target in ids or ())).tools))


@app.command()
def bench(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Default: every pure environment.")] = None,
    envs: Annotated[int, typer.Option(help="Environments side by side.", min=1)] = 1024,
    seconds: Annotated[float, typer.Option(help="How long to measure each.", min=0.01)] = 0.5,
    as_json: AsJson = False,
) -> None:
    """Measure compiled steps per second and the time of one step, here and now.

    Example: tropism bench CartPole-v1 Pendulum-v1

    Comparisons with other libraries are scripts in the repository: make bench.
    """
    from tropism.core.registry import registered

    rows: list[dict[str, Any]] = []
    chosen = ids or [spec.id for spec in registered() if spec.traced]
    with _progress() as bar:
        task = bar.add_task("", total=len(chosen))
        for id in chosen:
            bar.update(task, description=id)
            env, params = _environment(id, None, None)
            rows.append({"id": id, **_measure(env, params, envs, seconds)})
            bar.advance(task)
    _show(rows, as_json)


@sandbox.command("doctor")
def examine_sandbox(
    tier: Annotated[str | None, typer.Option(help="A or B; by default the first that can be had here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Attack the sandbox of Coding-v0 as it is on this machine; exit code 1 if anything gets through.

    Example: tropism sandbox doctor
    """
    from tropism.sandbox.doctor import examine
    from tropism.sandbox.pool import TIERS

    chosen: list[Any] = [known for known in TIERS if tier is None or tier == known]
    if not chosen:
        raise ValidationError("--tier", tier, f"one of {', '.join(TIERS)}")
    with _progress() as bar:
        task = bar.add_task("attacking the sandbox", total=None)
        report = examine(chosen, lambda done, total: bar.update(task, completed=done, total=total))
    rows = [{"attack": each.attack.name, "got through": each.succeeded} for each in report.outcomes]
    if as_json:
        told = {"tier": report.tier, "refusals": report.refusals, "reason": report.reason}
        print(json.dumps({**told, "attacks": rows, "cannot block": report.cannot_block}, indent=2))
    else:
        _show_report(report, rows)
    raise typer.Exit(0 if report.ok else 1)


def _show_report(report: Any, rows: list[dict[str, Any]]) -> None:
    table = Table("attack", "outcome")
    for row in rows:
        table.add_row(row["attack"], "[red]got through[/]" if row["got through"] else "blocked")
    if rows:
        console.print(table)
    for refusal in report.refusals:
        console.print(f"Not here: {escape(refusal)}", soft_wrap=True)
    if report.tier is not None:
        through = sum(row["got through"] for row in rows)
        console.print(f"Tier {report.tier}: {len(rows) - through} of {len(rows)} attacks were blocked.")
        console.print("What this tier cannot block:")
        for line in report.cannot_block:
            console.print(f"- {line}", soft_wrap=True)
    if report.reason is not None:
        console.print(f"[red]Coding-v0 is absent:[/] {escape(report.reason)}", soft_wrap=True)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the pictures go.")] = Path("runs"),
    seed: Seed = 0,
) -> None:
    """Roll out a few environments, draw them, and print what happened.

    Example: tropism demo --out runs
    """
    from tropism import film
    from tropism.core.session import Session

    rows: list[dict[str, Any]] = []
    ids = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "ConnectFour-v0", "PlumeNavMeander-v0", "PlumeNavPuffs-v0"]
    with _progress() as bar:
        task = bar.add_task("", total=len(ids))
        for id in ids:
            bar.update(task, description=id)
            env, params = _environment(id, None, ["trail=100"] if id.startswith("Plume") else None)
            session = Session(env, params)
            film.save(out / f"{id}.gif", film.frames(session, film.random_actions(seed), 100, seed))
            episode = {"steps": session.step_count, "return": session.total_reward, "ended": session.lifecycle.value}
            speed = _measure(env, params, 1024, 0.2)
            rows.append({"id": id, **episode, **speed})
            bar.advance(task)
    _show(rows, as_json=False)
    console.print(
        f"The pictures are in {escape(str(out))}/. Next: [bold]tropism list[/], [bold]tropism check CartPole-v1[/]."
    )


def _environment(target: str, param: list[str] | None, arg: list[str] | None) -> tuple[Any, Any]:
    """The environment that an id or `module:Class` names."""
    from tropism.core.agent import built, is_agent
    from tropism.core.environment import Environment, override
    from tropism.core.registry import make

    params = dict(_pair("--param", text) for text in param or [])
    arguments = dict(_pair("--arg", text) for text in arg or [])
    if ":" not in target:
        return make(target, params=params, **arguments)
    made = _load(target)
    if not isinstance(made, type) or not (issubclass(made, Environment) or is_agent(made)):
        raise ValidationError("target", target, "the name of an Environment or AgentEnvironment class")
    try:
        env = built(made, arguments)
    except TypeError as error:
        raise ValidationError("target", target, f"a class that can be made with these arguments ({error})") from None
    return env, override(env.default_params(), params)


def _id(target: str) -> str:
    """The id of a target; a class that has none yet is registered under its name."""
    from tropism.core.registry import register, registered

    if ":" not in target:
        return target
    made = _load(target)
    known = [spec.id for spec in registered() if spec.factory is made]  # the module may have registered it
    if not known:
        register(made.__name__, made)
    return known[0] if known else made.__name__


def _load(target: str) -> Any:
    """A class of the user's own; the current folder is importable, as for `python -m`."""
    module, _, name = target.partition(":")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValidationError("target", target, f"an importable module:Class ({error})") from None


def _pair(option: str, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValidationError(option, text, "NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _measure(env: Any, params: Any, envs: int, seconds: float) -> dict[str, Any]:
    """Compiled steps per second of a batch, and microseconds for one step of a session."""
    import jax

    from tropism.core.rollout import Transition, random_policy
    from tropism.core.rollout import rollout as run
    from tropism.core.session import Session

    policy = random_policy(env, params)

    def consume(step: Transition) -> Any:
        return sum(leaf.astype("float32").sum() for leaf in jax.tree.leaves(step))

    def batch(steps: int, seed: int) -> float:
        start = time.perf_counter()
        key = jax.random.key(seed)
        jax.block_until_ready(run(env, policy, key, envs, steps, params=params, collect=False, reduce=consume).totals)
        return time.perf_counter() - start

    batch(100, 0)
    steps = max(100, int(100 * seconds / batch(100, 1)))
    batch(steps, 0)
    session = Session(env, params)
    key = jax.random.key(0)
    actions = [session.action_space.coerce(session.action_space.sample(jax.random.fold_in(key, i))) for i in range(64)]
    return {"compiled steps/s": envs * steps / batch(steps, 1), "session µs/step": _latency(session, actions, seconds)}


def _latency(session: Any, actions: list[Any], seconds: float) -> float:
    session.reset(seed=0)
    session.step(actions[0])
    session.reset()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for action in actions:
            timestep = session.step(action)
            if timestep.terminated or timestep.truncated:
                session.reset()
        steps += len(actions)
    return (time.perf_counter() - start) / steps * 1e6


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=errors)


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
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
