"""A training as events for TensorBoard (extra `tensorboard`)."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tropism.errors import require_extra
from tropism.train.run import Report


def event_log(folder: Path) -> Callable[[Report], None]:
    """Writes every report into `folder`: a return for each agent, their mean, and the speed."""
    require_extra("tensorboard", "--tensorboard", "tensorboardX")
    writer: Any = importlib.import_module("tensorboardX").SummaryWriter(str(folder))

    def log(report: Report) -> None:
        numbers = {f"return/{agent}": value for agent, value in enumerate(report.returns)}
        numbers |= {"return/mean": report.mean, "steps_per_second": report.steps_per_second}
        for name, value in numbers.items():
            if value is not None:
                writer.add_scalar(name, value, report.steps)
        writer.flush()

    return log


def no_log(report: Report) -> None:
    """Nothing is written."""
    del report
