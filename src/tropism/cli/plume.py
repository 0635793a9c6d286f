"""The command plume stats."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tropism.cli.terminal import Arguments, AsJson, Params, Seed, console, environment, parse_pairs, print_json
from tropism.errors import ValidationError


def stats(
    target: Annotated[
        str, typer.Argument(metavar="ID|MODULE:CLASS|FILE", help="A plume environment, or a file of frames.")
    ],
    distance: Annotated[
        float | None, typer.Option(help="Distance downwind of the source; by default halfway to the edge.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Concentration of a whiff; by default a tenth of the mean at --distance.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of each realisation; of a file, its frames.", min=2)] = 2000,
    realisations: Annotated[int, typer.Option(help="Realisations of a simulated plume.", min=1)] = 8,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .png file: plots beside published curves.")] = None,
    seed: Seed = 0,
    param: Params = None,
    arg: Arguments = None,
    as_json: AsJson = False,
) -> None:
    """Print the statistics of a plume: intermittency, whiffs and blanks, profiles, distribution and spectrum.

    For a file, --arg sets arguments of PlumeRecording.load, or data_set, the name of a public data set.

    Example: tropism plume stats PlumeNavPuffs-v0 -o plume.png
    """
    from tropism.plume.measurement import measure

    numbers = {"distance": distance, "threshold": threshold, "num_steps": steps, "num_realisations": realisations}
    with console.status(f"{target}: simulating"):
        measured = measure(*_plume(target, param, arg), **numbers, seed=seed)
    if out is not None:
        from tropism.drawing.plume_plots import draw_plume_statistics

        draw_plume_statistics(target, measured, out)
    if as_json:
        return print_json({"target": target, **measured.to_json()})
    console.print(_table(target, measured))
    return console.print(_profiles(measured))


def _plume(target: str, param: list[str] | None, arg: list[str] | None) -> tuple[Any, ...]:
    """The arguments of `measure`: a recording, or a field and the corners of its arena."""
    from tropism.envs.plume.nav import PlumeNavParams
    from tropism.plume import PlumeRecording, load_data_set
    from tropism.plume.fields.files import SUFFIXES

    if Path(target).suffix.lower() in SUFFIXES:
        about = parse_pairs("--arg", arg)
        name = about.pop("data_set", None)
        return (PlumeRecording.load(target, **about) if name is None else load_data_set(name, target, **about),)
    _, params = environment(target, param, arg)
    if not isinstance(params, PlumeNavParams):
        raise ValidationError("target", target, f"a plume environment or a file that ends in {', '.join(SUFFIXES)}")
    return params.field, params.arena.low, params.arena.high


def _table(target: str, measured: Any) -> Table:
    table = Table("quantity", "value", "published", title=f"{target}, {measured.distance:.4g} downwind of the source")
    table.add_row("mean wind", "({:.3g}, {:.3g})".format(*measured.wind), "")
    table.add_row("concentration", f"{measured.mean:.3g} ± {measured.deviation:.3g}", "")
    table.add_row("width across the wind", f"{measured.across.width:.3g}", "")
    table.add_row(f"intermittency from {measured.threshold:.3g}", f"{measured.intermittency:.3g}", "")
    for name, each in (("whiff", measured.whiffs), ("blank", measured.blanks)):
        mean = f"{each.seconds.mean():.3g} s of {len(each.seconds)}" if len(each.seconds) else "none"
        table.add_row(f"mean {name}", mean, "")
        exponent = "-" if each.exponent is None else f"{each.exponent:.2f} ± {each.error:.2f}"
        table.add_row(f"exponent of {name}s", exponent, "1.5 (Celani et al. 2014)")
    return table


def _profiles(measured: Any) -> Table:
    columns = ("mean", "std", "γ")
    table = Table("downwind", *columns, "across", *columns, caption="γ: intermittency")
    for rows in zip(*measured.along, *measured.across, strict=True):
        table.add_row(*(f"{number:.3g}" for number in rows))
    return table
