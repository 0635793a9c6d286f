"""The commands minari export and minari import."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tropism.cli.terminal import Folder, console, environment

Name = Annotated[str, typer.Argument(metavar="NAME", help="A Minari dataset, such as tropism/cartpole-v0.")]


def export_to_minari(
    folder: Folder,
    name: Name,
    author: Annotated[str | None, typer.Option(help="Author of the dataset.")] = None,
    description: Annotated[str | None, typer.Option(help="Description of the dataset.")] = None,
    env: Annotated[str | None, typer.Option(help="module:Class, if the recording's id is not registered.")] = None,
) -> None:
    """Export recordings to a local Minari dataset (in MINARI_DATASETS_PATH, or ~/.minari/datasets).

    Example: tropism minari export recordings/cartpole tropism/cartpole-v0
    """
    from tropism.core.session.session import Session
    from tropism.gym import to_minari

    session = None if env is None else Session(*environment(env, None, None))
    dataset = to_minari(folder, name, session, author=author, description=description)
    console.print(f"{escape(name)}: {dataset.total_episodes} episodes, {dataset.total_steps} steps")


def import_from_minari(
    name: Name, out: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")]
) -> None:
    """Import a local Minari dataset as recordings, without downloading anything.

    Example: tropism minari import tropism/cartpole-v0 recordings/cartpole
    """
    from tropism.gym import from_minari

    reader = from_minari(name, out)
    console.print(f"{escape(str(out))}: {len(reader)} episodes")
