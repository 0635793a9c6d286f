"""The options --sweep and --on of the command train."""

import json
from pathlib import Path
from typing import Any

from tropism.cli.interrupts import exit_now
from tropism.cli.terminal import make_folder, plain_warnings, print_rows, print_text, progress_bar
from tropism.errors import ValidationError


def run_sweep(training: Any, folder: Path, texts: list[str], on: str | None, as_json: bool) -> None:
    """Train with each combination of hyperparameters, on an executor, and print the last returns."""
    from tropism.scale.sweeps import grid, sweep
    from tropism.train.run import CHECKPOINT

    values = dict(_parse_values(text) for text in texts)
    trainings = grid(training, values) if values else {".": training}
    for name in trainings:
        if (folder / name / CHECKPOINT).exists():
            raise ValidationError("out", str(folder / name), "a folder without an agent")
    histories: dict[str, Any] = {}
    with plain_warnings(), progress_bar() as bar:
        task = bar.add_task(f"{training.id}: {len(trainings)} training runs", total=len(trainings))

        def show(name: str, history: list[Any]) -> None:
            histories[name] = history
            bar.update(task, advance=1)

        try:
            sweep(trainings, make_folder(folder), show, on=on)
        except KeyboardInterrupt:
            bar.stop()
            exit_now(f"Interrupted. {len(histories)} of {len(trainings)} training runs are complete, in {folder}/.")
    print_rows([_row(folder, name, histories[name]) for name in trainings], as_json)
    if not as_json:
        print_text(f"Agents and learning curves are in {folder}/.")


def _row(folder: Path, name: str, history: list[Any]) -> dict[str, Any]:
    steps, returns = history[-1]
    known = [value for value in returns if value is not None]
    return {"agent": str(folder / name), "steps": steps, "return": sum(known) / len(known) if known else None}


def _parse_values(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    try:
        parsed = [json.loads(value) for value in values.split(",")]
    except ValueError:
        parsed = []
    if not name or not equals or not parsed:
        raise ValidationError("sweep", text, "NAME=VALUE,VALUE")
    return name.replace("-", "_"), parsed
