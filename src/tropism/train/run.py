"""A training from start to end, or from a checkpoint on: progress, checkpoints, a learning curve."""

import json
import time
from collections.abc import Callable, Iterator
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
    """Where a training stands; a return for each seed: the mean of its environments' last episodes."""

    steps: int
    total_steps: int
    returns: list[float | None]
    steps_per_second: float

    @property
    def mean(self) -> float | None:
        known = [value for value in self.returns if value is not None]
        return float(np.mean(known)) if known else None

    @property
    def error(self) -> float | None:
        """Half of the 95 % interval of the mean over agents; None where they are too few to tell."""
        known = [value for value in self.returns if value is not None]
        return float(1.96 * np.std(known, ddof=1) / len(known) ** 0.5) if len(known) > 1 else None


def training(recipe: Training, out: Path, resume: bool = False) -> Iterator[tuple[Report, TrainState]]:
    """Train, step by step: a report and the agents so far, when their checkpoint is in `out`; stop when you like."""
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
        yield report, state


def train(
    recipe: Training, out: Path, show: Callable[[Report], None] = lambda _report: None, resume: bool = False
) -> tuple[TrainState, list[Any]]:
    """Train to the end. A resumed training is the same one; returns the agents and the learning curve."""
    for report, _ in training(recipe, out, resume):
        show(report)
    recipe, state, history = checkpoint.load(out / CHECKPOINT)
    (out / "curve.json").write_text(json.dumps({"id": recipe.id, "curve": history}) + "\n")
    return state, history


def _chunks(recipe: Training, done: int) -> list[int]:
    """Updates between two reports; the same ones whether or not the training was interrupted between them."""
    total = recipe.config.num_updates
    size = -(-total // REPORTS)
    ends = [*range(size, total, size), total]
    return [end - max(done, end_before) for end_before, end in zip([0, *ends], ends, strict=False) if end > done]


def _report(recipe: Training, trainer: Trainer, state: TrainState, progress: Progress, seconds: float) -> Report:
    returns = [None if np.isnan(last) else float(last) for last in np.asarray(progress.last)[:, -1]]
    batch, updates = trainer.config.batch, progress.last.shape[1]
    done = int(np.max(np.asarray(state.updates))) * batch
    speed = updates * batch * recipe.seeds / seconds
    return Report(done, recipe.config.num_updates * batch, returns, speed)
