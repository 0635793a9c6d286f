"""Commands about recordings: record, replay, minari export, minari import."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Fps,
    Greedy,
    Params,
    PolicyName,
    Seed,
    console,
    environment,
    errors,
    pair,
    print_rows,
    progress_bar,
)
from tropism.errors import ValidationError

Name = Annotated[str, typer.Argument(metavar="NAME", help="A Minari dataset, such as tropism/cartpole-v0.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder with recordings.")]


def record(
    target: Annotated[str, typer.Argument(metavar="ID|MODULE:CLASS", help="A registered id, or your class.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder; one of the same environment is added to.")],
    episodes: Annotated[int, typer.Option(help="Episodes; number i has seed SEED + i.", min=1)] = 10,
    policy: PolicyName = "random",
    greedy: Greedy = False,
    steps: Annotated[int, typer.Option(help="Steps of an episode at most.", min=1)] = 1000,
    seed: Seed = 0,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Record episodes into a folder of Parquet files.

    Example: tropism record CartPole-v1 --episodes 100 -o recordings/cartpole
    """
    from tropism.cli.policies import policy_of
    from tropism.core.session.session import Session
    from tropism.record import Recorder

    session = Session(*environment(target, param, arg))
    player = policy_of(policy, session, greedy)
    returns: list[float] = []
    taken = 0
    try:
        with Recorder(session, out) as recorder, progress_bar() as bar:
            for number in bar.track(range(episodes), description=target):
                player.begin(seed + number)
                timestep = recorder.reset(seed=seed + number)
                while session.step_count < steps and not (timestep.terminated or timestep.truncated):
                    timestep = recorder.step(player.act(timestep.obs))
                returns.append(session.total_reward)
                taken += session.step_count
    except OSError as error:
        raise ValidationError("out", str(out), f"a folder with room for it ({error})") from None
    mean = sum(returns) / len(returns)
    print_rows([{"folder": str(out), "episodes": episodes, "steps": taken, "mean_return": mean}], as_json)


def replay(
    folder: Folder,
    verify: Annotated[bool, typer.Option("--verify", help="Compare bit for bit; exit code 1 if one differs.")] = False,
    episode: Annotated[int | None, typer.Option(help="Only this one; the first is 0.", min=0)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Film the episode: a .gif, .mp4 or .png file (the last picture)."),
    ] = None,
    fps: Fps = None,
    env: Annotated[
        str | None, typer.Option(help="module:Class, where the recording's id is registered nowhere.")
    ] = None,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Run recorded episodes again, from their seeds, options and actions.

    Example: tropism replay recordings/cartpole --verify
    Example: tropism replay recordings/cartpole --episode 3 -o episode.mp4
    """
    from tropism.record import Reader, film, first_difference, session_of
    from tropism.record import replay as again

    if env is None and (param or arg):
        raise ValidationError("env", None, "--env, to give it --param or --arg: a recording has its own")
    reader = Reader(folder)
    session = session_of(reader.manifest) if env is None else _session_with(reader.manifest, env, param, arg)
    if out is not None:
        film.check_path(out)
        if episode is None and len(reader) > 1:
            raise ValidationError("episode", None, f"--episode 0 to {len(reader) - 1}: a film shows one episode")
    chosen = reader.episodes if episode is None else [episode]
    rows: list[dict[str, Any]] = []
    with progress_bar() as bar:
        for number in bar.track(chosen, description="verifying" if verify else "replaying"):
            recorded = reader[number]
            if verify:
                found = first_difference(session, recorded)
                outcome = {"differs": None if found is None else found._asdict()}
            else:
                outcome = {"return": float(sum(timestep.reward for timestep in again(session, recorded)))}
            rows.append({"episode": number, "seed": recorded.seed, "steps": len(recorded), **outcome})
    if out is not None:
        _film(out, session, reader[chosen[0]], fps)
    _tell(rows, reader.manifest.versions, verify, as_json)


def _session_with(manifest: Any, env: str, param: list[str] | None, arg: list[str] | None) -> Any:
    from tropism.record.replay import session_with

    return session_with(
        manifest,
        env,
        *(dict(pair(name, text) for text in given or []) for name, given in (("--param", param), ("--arg", arg))),
    )


def _film(out: Path, session: Any, recorded: Any, fps: float | None) -> None:
    from tropism.record import film
    from tropism.record.replay import sessions_of

    with progress_bar() as bar:
        sessions = bar.track(sessions_of(session, recorded), total=len(recorded) + 1, description=str(out))
        film.save(out, (film.picture(each) for each in sessions), fps)
    errors.print(f"wrote {escape(str(out))}", highlight=False, soft_wrap=True)


def export_to_minari(
    folder: Folder,
    name: Name,
    author: Annotated[str | None, typer.Option(help="Who made the dataset.")] = None,
    description: Annotated[str | None, typer.Option(help="What is in it.")] = None,
    env: Annotated[
        str | None, typer.Option(help="module:Class, where the recording's id is registered nowhere.")
    ] = None,
) -> None:
    """Write recordings as a local Minari dataset (in MINARI_DATASETS_PATH, or ~/.minari/datasets).

    Example: tropism minari export recordings/cartpole tropism/cartpole-v0
    """
    from tropism.core.session.session import Session
    from tropism.gym import to_minari

    session = None if env is None else Session(*environment(env, None, None))
    dataset = to_minari(folder, name, session, author=author, description=description)
    console.print(f"{escape(name)}: {dataset.total_episodes} episodes, {dataset.total_steps} steps")


def import_from_minari(
    name: Name, out: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to record into.")]
) -> None:
    """Write a local Minari dataset as recordings; nothing is downloaded.

    Example: tropism minari import tropism/cartpole-v0 recordings/cartpole
    """
    from tropism.gym import from_minari

    reader = from_minari(name, out)
    console.print(f"{escape(str(out))}: {len(reader)} episodes")


def _tell(rows: list[dict[str, Any]], recorded_with: dict[str, Any], verify: bool, as_json: bool) -> None:
    from tropism.record.manifest import versions

    differing = [row for row in rows if row.get("differs")]
    if as_json:
        print(json.dumps(rows, indent=1, default=lambda value: value.tolist()))
    elif not verify:
        print_rows(rows, as_json)
    else:
        for row in differing:
            step, name, recorded, replayed = row["differs"].values()
            text = f"episode {row['episode']} differs at step {step}: {name} was {recorded} and is now {replayed}"
            console.print(escape(text), highlight=False, soft_wrap=True)
        if differing and recorded_with != versions():
            console.print(f"recorded with {recorded_with}, replayed with {versions()}", highlight=False, soft_wrap=True)
        steps = sum(row["steps"] for row in rows)
        console.print(f"{len(rows) - len(differing)} of {len(rows)} episodes ({steps} steps) repeat bit for bit")
    raise typer.Exit(1 if differing else 0)
