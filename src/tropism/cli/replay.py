"""The command replay."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tropism.cli.terminal import (
    Arguments,
    AsJson,
    Folder,
    Fps,
    Params,
    console,
    errors,
    parse_pairs,
    print_rows,
    progress_bar,
)
from tropism.errors import ValidationError


def replay(
    folder: Folder,
    verify: Annotated[bool, typer.Option("--verify", help="Compare bit for bit; exit code 1 on a difference.")] = False,
    episode: Annotated[int | None, typer.Option(help="Number of a single episode, from 0.", min=0)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Render the episode to a .gif, .mp4 or .png file (the last frame)."),
    ] = None,
    fps: Fps = None,
    env: Annotated[str | None, typer.Option(help="module:Class, if the recording's id is not registered.")] = None,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded episodes from their seeds, options and actions.

    Example: tropism replay recordings/cartpole --verify
    Example: tropism replay recordings/cartpole --episode 3 -o episode.mp4
    """
    from tropism.record import Reader, film, first_difference
    from tropism.record import replay as run_replay
    from tropism.record.replay import session_for_target

    if env is None and (param or arg):
        raise ValidationError("env", None, "--env with --param or --arg; without it, the recording defines both")
    reader = Reader(folder)
    if env is None:
        session = _session_of(reader.manifest)
    else:
        params, arguments = parse_pairs("--param", param), parse_pairs("--arg", arg)
        session = session_for_target(reader.manifest, env, params, arguments)
    if out is not None:
        film.check_path(out)
        if episode is None and len(reader) > 1:
            raise ValidationError("episode", None, f"--episode 0 to {len(reader) - 1}: a movie shows one episode")
    chosen = reader.episodes if episode is None else [episode]
    rows: list[dict[str, Any]] = []
    with progress_bar() as bar:
        for number in bar.track(chosen, description="verifying" if verify else "replaying"):
            recorded = reader[number]
            if verify:
                found = first_difference(session, recorded)
                outcome = {"differs": None if found is None else found._asdict()}
            else:
                outcome = {"return": float(sum(timestep.reward for timestep in run_replay(session, recorded)))}
            rows.append({"episode": number, "seed": recorded.seed, "steps": len(recorded), **outcome})
    if out is not None:
        _save_film(out, session, reader[chosen[0]], fps)
    _print_results(rows, reader.manifest.versions, verify, as_json)


def _session_of(manifest: Any) -> Any:
    if "gymnasium" in (manifest.env or {}):
        from tropism.gym import session_of
    else:
        from tropism.record import session_of
    return session_of(manifest)


def _save_film(out: Path, session: Any, recorded: Any, fps: float | None) -> None:
    from tropism.record import film
    from tropism.record import replay as run_replay

    with progress_bar() as bar:
        steps = bar.track(run_replay(session, recorded), total=len(recorded) + 1, description=str(out))
        film.save(out, (film.render_frame(session) for _ in steps), fps)
    errors.print(f"wrote {escape(str(out))}", highlight=False, soft_wrap=True)


def _print_results(rows: list[dict[str, Any]], recorded_with: dict[str, Any], verify: bool, as_json: bool) -> None:
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
