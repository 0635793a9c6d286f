"""A training from start to end, or from a checkpoint on: progress, checkpoints, a learning curve."""

import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from tropism.errors import NonFiniteError, ObservationWarning, ValidationError
from tropism.train import checkpoint
from tropism.train.checkpoint import Training
from tropism.train.faults import Chunk, Finding
from tropism.train.ppo import Progress, Trainer, TrainState, stack, update_often

REPORTS = 50  # of a whole training
CHECKPOINT = "agent.tropism"


Started = Callable[[int, float], None]  # called with the steps done and the seconds that the others will take


def _ignore(_steps: int, _seconds: float) -> None:
    """Nothing to show."""


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


def training(
    recipe: Training, out: Path, resume: bool = False, started: Started = _ignore
) -> Iterator[tuple[Report, TrainState]]:
    """Train step by step: a report and the agents so far, once their checkpoint is in `out`; stop whenever you like.

    `started` is called once, after the first two updates, when it is known how long the others will take. A NaN or
    infinite number raises NonFiniteError and is not saved; an observation outside its space is a warning, once.
    """
    path = out / CHECKPOINT
    trainer, state, history = _begin(recipe, path, resume)
    chunks, warned = _chunks(recipe, _num_updates(state)), False
    clock = _Clock(sum(chunks), started)
    for updates in chunks:
        done = _num_updates(state)
        state, progress, seconds = clock.advance(trainer, state, updates)
        chunk = Chunk(recipe.config, done, progress.fault, progress.loss)
        _stop_if(chunk.not_finite() or _spoilt(chunk, state), path if history else None)
        outside = None if warned else chunk.outside(trainer.observation_space)
        if outside is not None:
            warned = True
            message = f"{outside.message}. Training goes on; further ones are not reported."
            warnings.warn(message, ObservationWarning, stacklevel=2)
        report = _report(recipe, trainer, state, progress, seconds)
        history.append([report.steps, report.returns])
        checkpoint.save(path, recipe, state, history)
        yield report, state


def train(
    recipe: Training,
    out: Path,
    show: Callable[[Report], None] = lambda _report: None,
    resume: bool = False,
    started: Started = _ignore,
) -> tuple[TrainState, list[Any]]:
    """Train to the end. A resumed training is the same one; returns the agents and the learning curve."""
    for report, _ in training(recipe, out, resume, started):
        show(report)
    recipe, state, history = checkpoint.load(out / CHECKPOINT, recipe.own_class)
    checkpoint.write(out / "curve.json", f"{json.dumps({'id': recipe.id, 'curve': history})}\n".encode())
    return state, history


def _begin(recipe: Training, path: Path, resume: bool) -> tuple[Trainer, TrainState, list[Any]]:
    if not resume:
        trainer = recipe.trainer()
        return trainer, recipe.start(trainer), []
    check_resumed(path, recipe)
    _, state, history = checkpoint.load(path, recipe.own_class)
    return recipe.trainer(), state, history


def check_resumed(path: Path, asked: Training) -> None:
    """A resumed training is the one that was begun; its steps in total may differ, but not be fewer than were done."""
    begun, steps = checkpoint.recipe_of(path), checkpoint.steps_of(path)
    same = asked.named()._replace(config=replace(asked.config, total_steps=begun.config.total_steps))
    if same != begun:
        raise ValidationError("resume", str(path), f"the training it was begun with, {begun}; not {asked}")
    if asked.config.num_updates * asked.config.batch < steps:
        expected = f"at least {steps:,}, the steps that the training in {path.parent} has done"
        raise ValidationError("total_steps", asked.config.total_steps, expected)


class _Clock:
    """Measures how long an update takes, without the first one, which compiles."""

    def __init__(self, updates: int, started: Started):
        self._left = updates
        self._started = started
        self._done = 0

    def advance(self, trainer: Trainer, state: TrainState, updates: int) -> tuple[TrainState, Progress, float]:
        """Some updates, and the seconds that one of them took."""
        reports: list[Progress] = []
        measured: list[tuple[int, float]] = []
        while updates:
            size = updates if self._done > 1 else 1
            begun = time.perf_counter()
            state, more = update_often(trainer, state, size)
            jax.block_until_ready(state.updates)
            measured.append((size, time.perf_counter() - begun))
            reports += more
            updates, self._done, self._left = updates - size, self._done + size, self._left - size
            if self._done == 2:
                self._started(_num_updates(state) * trainer.config.batch, measured[-1][1] * self._left)
        counted = measured[1:] if self._done == sum(size for size, _ in measured) > 1 else measured
        seconds = sum(took for _, took in counted) / sum(size for size, _ in counted)
        return state, stack(reports), seconds


def _num_updates(state: TrainState) -> int:
    return int(np.max(np.asarray(state.updates)))


def _spoilt(chunk: Chunk, state: TrainState) -> Finding | None:
    return chunk.spoilt(
        agent=state.agent,
        optimizer=state.optimizer,
        obs_moments=state.obs_moments,
        return_moments=state.return_moments,
    )


def _stop_if(finding: Finding | None, saved: Path | None) -> None:
    if finding is None:
        return
    kept = "Nothing was saved." if saved is None else f"The last good agent is in {saved}."
    message = f"{finding.message}, so training was stopped. {kept}"
    raise NonFiniteError(finding.quantity, finding.value, "a finite number", message)


def _chunks(recipe: Training, done: int) -> list[int]:
    """Updates between two reports; the same ones whether or not the training was interrupted between them."""
    total = recipe.config.num_updates
    size = -(-total // REPORTS)
    ends = [*range(size, total, size), total]
    return [end - max(done, end_before) for end_before, end in zip([0, *ends], ends, strict=False) if end > done]


def _report(recipe: Training, trainer: Trainer, state: TrainState, progress: Progress, seconds: float) -> Report:
    returns = [None if np.isnan(last) else float(last) for last in np.asarray(progress.last)[:, -1]]
    batch = trainer.config.batch
    speed = batch * recipe.seeds / seconds
    return Report(_num_updates(state) * batch, recipe.config.num_updates * batch, returns, speed)
