"""TensorBoard events of a training run (extra `tensorboard`)."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tropism.errors import require_extra
from tropism.train.run import TrainingReport


def event_log(folder: Path) -> Callable[[TrainingReport], None]:
    """A function that logs a report to `folder`: the return of each agent, their mean, and steps per second."""
    require_extra("tensorboard", "--tensorboard", "tensorboardX")
    writer: Any = importlib.import_module("tensorboardX").SummaryWriter(str(folder))

    def log(report: TrainingReport) -> None:
        numbers = {f"return/{agent}": value for agent, value in enumerate(report.returns)}
        numbers |= {"return/mean": report.mean, "steps_per_second": report.steps_per_second}
        for name, value in numbers.items():
            if value is not None:
                writer.add_scalar(name, value, report.steps)
        writer.flush()

    return log
