"""Several training runs on an executor, such as those of a grid of hyperparameters."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tropism.errors import ValidationError
from tropism.scale.executor import use_executor
from tropism.train.checkpoint import write_atomically
from tropism.train.run import CHECKPOINT, train
from tropism.train.training import Training


def run_training(training: Training) -> tuple[bytes, list[Any]]:
    """Train, and return the checkpoint, which another machine may write, and the learning curve."""
    with TemporaryDirectory() as folder:
        _, history = train(training, Path(folder))
        return (Path(folder) / CHECKPOINT).read_bytes(), history


def sweep(
    trainings: Mapping[str, Training],
    out: Path,
    on_progress: Callable[[str, list[Any]], None] = lambda _name, _history: None,
    *,
    on: Any = None,
) -> dict[str, list[Any]]:
    """Train each, into a folder of its name in `out`, and return the learning curves.

    The same agents on every executor, bit for bit on machines of one kind; `on` is as in `tropism.scale.evaluate`.
    `on_progress` is called after each run. After Ctrl-C, the complete ones are in their folders.
    """
    names = list(trainings)
    histories: dict[str, list[Any]] = {}
    with use_executor(on) as executor:
        for number, (checkpoint, history) in executor.run(run_training, list(trainings.values())):
            name = names[number]
            curve = {"id": trainings[name].id, "curve": history}
            write_atomically(out / name / CHECKPOINT, checkpoint)
            write_atomically(out / name / "curve.json", f"{json.dumps(curve)}\n".encode())
            histories[name] = history
            on_progress(name, history)
    return {name: histories[name] for name in names}


def grid(training: Training, values: Mapping[str, Sequence[Any]]) -> dict[str, Training]:
    """The training run with each combination of hyperparameters, by a name such as `learning_rate=0.001`."""
    known = vars(training.config)
    for name in values:
        if name not in known:
            raise ValidationError("sweep", name, f"a hyperparameter: {', '.join(known)}")
    combinations = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    return {
        ",".join(f"{name}={value}" for name, value in chosen.items()): training._replace(
            config=replace(training.config, **chosen)
        )
        for chosen in combinations
    }
