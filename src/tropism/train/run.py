"""A training from start to end, or from a checkpoint on: progress, checkpoints, a learning curve."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tropism.errors import ValidationError
from tropism.train import checkpoint
from tropism.train.checkpoint import Training
from tropism.train.ppo import Progress, Trainer, TrainState, advance

REPORTS = 50  # of a whole training
CHECKPOINT = "agent.tropism"


class Report(NamedTuple):
    """Where a training stands; returns are of the episodes that ended since the last report, a value for each seed."""

    steps: int
    total_steps: int
    returns: list[float | None]
    steps_per_second: float

    @property
    def mean(self) -> float | None:
        known = [value for value in self.returns if value is not None]
        return float(np.mean(known)) if known else None


def train(
    recipe: Training, out: Path, show: Callable[[Report], None] = lambda _report: None, resume: bool = False
) -> tuple[TrainState, list[Any]]:
    """Train and write `out`: a checkpoint after every report, and the curve. A resumed training is the same one."""
    path = out / CHECKPOINT
    if resume:
        asked, (recipe, state, history) = recipe, checkpoint.load(path)
        if asked != recipe:
            raise ValidationError("resume", str(path), f"the training it was begun with, {recipe}; not {asked}")
        trainer = recipe.trainer()
    else:
        trainer, history = recipe.trainer(), []
        state = recipe.start(trainer)
    for updates in _chunks(recipe, int(np.max(np.asarray(state.updates)))):
        start = time.perf_counter()
        state, progress = advance(trainer, state, updates)
        jax.block_until_ready(state.updates)
        report = _report(recipe, trainer, state, progress, time.perf_counter() - start)
        history.append([report.steps, report.returns])
        checkpoint.save(path, recipe, state, history)
        show(report)
    (out / "curve.json").write_text(json.dumps({"id": recipe.id, "curve": history}) + "\n")
    return state, history


def _chunks(recipe: Training, done: int) -> list[int]:
    """Updates between two reports; the same ones whether or not the training was interrupted between them."""
    total = recipe.config.num_updates
    size = -(-total // REPORTS)
    ends = [*range(size, total, size), total]
    return [end - max(done, end_before) for end_before, end in zip([0, *ends], ends, strict=False) if end > done]


def _report(recipe: Training, trainer: Trainer, state: TrainState, progress: Progress, seconds: float) -> Report:
    episodes, returns = np.asarray(progress.episodes).sum(1), np.asarray(progress.returns).sum(1)
    means = [float(total / count) if count else None for total, count in zip(returns, episodes, strict=True)]
    batch, updates = trainer.config.batch, progress.loss.shape[1]
    done = int(np.max(np.asarray(state.updates))) * batch
    return Report(done, recipe.config.num_updates * batch, means, updates * batch * recipe.seeds / seconds)
