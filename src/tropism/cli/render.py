"""The command render."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tropism.cli.terminal import (
    Arguments,
    Fps,
    Greedy,
    Id,
    Params,
    PolicyName,
    Seed,
    console,
    environment,
    progress_bar,
)


def render(
    id: Id,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .gif, .mp4 or .png file (the last frame).")],
    policy: PolicyName = "random",
    greedy: Greedy = False,
    steps: Annotated[int, typer.Option(help="Maximum steps.", min=0)] = 200,
    fps: Fps = None,
    seed: Seed = 0,
    param: Params = None,
    arg: Arguments = None,
) -> None:
    """Render one episode of a policy to a movie or an image.

    Example: tropism render PlumeNavPuffs-v0 --steps 100 -o puffs.gif --arg trail=100
    Example: tropism render PlumeNavMeander-v0 --policy runs/train/PlumeNavMeander-v0 -o search.mp4
    """
    from tropism.cli.policies import policy_of
    from tropism.core.session.session import Session
    from tropism.record import film

    film.check_path(out)
    session = Session(*environment(id, param, arg))
    stepped = policy_of(policy, session, greedy)
    stepped.reset(seed)
    with progress_bar() as bar:
        task = bar.add_task(id, total=steps + 1)
        episode = film.play(session, lambda session: stepped.act(session.timestep.obs), steps, seed)
        sessions = iter(bar.track(episode, task_id=task))
        if out.suffix.lower() == ".png":  # the last frame
            *_, last = sessions
            sessions = iter((last,))
        film.save(out, map(film.render_frame, sessions), fps)
        bar.update(task, total=session.step_count + 1)  # the episode may have ended earlier
    console.print(
        f"{escape(str(out))}: {session.step_count} steps, return {session.total_reward:.3g}, {session.lifecycle.value}"
    )
