"""Runs a training from the start or from a checkpoint, with progress reports and a learning curve."""

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
from tropism.train.faults import Chunk, FaultDescription
from tropism.train.ppo import Trainer, TrainState, UpdateMetrics, dispatch_updates, stack_metrics

REPORTS = 50  # per training
CHECKPOINT = "agent.tropism"

EstimateCallback = Callable[[int, float], None]  # called with the steps done and the seconds remaining


def _ignore(_steps: int, _seconds: float) -> None:
    """Discard the estimate."""


class TrainingReport(NamedTuple):
    """Progress of a training; `returns` has, per agent, the mean return of its environments' last episodes."""

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
        """Half width of the 95 % interval of the mean over agents; None for fewer than two."""
        known = [value for value in self.returns if value is not None]
        return float(1.96 * np.std(known, ddof=1) / len(known) ** 0.5) if len(known) > 1 else None


def train_in_chunks(
    training: Training, out: Path, resume: bool = False, on_estimate: EstimateCallback = _ignore
) -> Iterator[tuple[TrainingReport, TrainState]]:
    """Train, yielding a report and the state each time a checkpoint was written to `out`; may be stopped at any time.

    `on_estimate` is called once, after the first two updates, with the estimated remaining time. A NaN or infinite
    number raises NonFiniteError and is not saved; the first observation outside its space causes a warning.
    """
    path = out / CHECKPOINT
    trainer, state, history = _start(training, path, resume)
    chunks, warned = _chunks(training, _num_updates(state)), False
    timer = _UpdateTimer(sum(chunks), on_estimate)
    for updates in chunks:
        done = _num_updates(state)
        state, metrics, seconds = timer.run_updates(trainer, state, updates)
        chunk = Chunk(training.config, done, metrics.fault, metrics.loss)
        _stop_if(chunk.first_non_finite() or _non_finite_state(chunk, state), path if history else None)
        outside = None if warned else chunk.first_outside_space(trainer.observation_space)
        if outside is not None:
            warned = True
            message = f"{outside.message}. Training continues; further ones are not reported."
            warnings.warn(message, ObservationWarning, stacklevel=2)
        report = _report(training, trainer, state, metrics, seconds)
        history.append([report.steps, report.returns])
        checkpoint.save(path, training, state, history)
        yield report, state


def train(
    training: Training,
    out: Path,
    show: Callable[[TrainingReport], None] = lambda _report: None,
    resume: bool = False,
    on_estimate: EstimateCallback = _ignore,
) -> tuple[TrainState, list[Any]]:
    """Train to the end and return the state and the learning curve; resuming gives the same result bit for bit."""
    for report, _ in train_in_chunks(training, out, resume, on_estimate):
        show(report)
    training, state, history = checkpoint.load(out / CHECKPOINT, training.network_class)
    checkpoint.write_atomically(out / "curve.json", f"{json.dumps({'id': training.id, 'curve': history})}\n".encode())
    return state, history


def _start(training: Training, path: Path, resume: bool) -> tuple[Trainer, TrainState, list[Any]]:
    if not resume:
        trainer = training.trainer()
        return trainer, training.start(trainer), []
    check_resumable(path, training)
    _, state, history = checkpoint.load(path, training.network_class)
    return training.trainer(), state, history


def check_resumable(path: Path, requested: Training) -> None:
    """Reject changed settings; only `total_steps` may differ, but not be less than the steps done."""
    stored, steps = checkpoint.load_training(path), checkpoint.load_steps(path)
    same = requested.with_network_name()._replace(
        config=replace(requested.config, total_steps=stored.config.total_steps)
    )
    if same != stored:
        raise ValidationError("resume", str(path), f"the settings it was started with, {stored}; not {requested}")
    if requested.config.num_updates * requested.config.batch < steps:
        expected = f"at least {steps:,}, the steps already done in {path.parent}"
        raise ValidationError("total_steps", requested.config.total_steps, expected)


class _UpdateTimer:
    """Runs updates and measures their duration, excluding the first, which compiles."""

    def __init__(self, updates: int, on_estimate: EstimateCallback):
        self._remaining = updates
        self._on_estimate = on_estimate
        self._done = 0

    def run_updates(self, trainer: Trainer, state: TrainState, updates: int) -> tuple[TrainState, UpdateMetrics, float]:
        """Returns the new state, the metrics, and the seconds per update."""
        metrics: list[UpdateMetrics] = []
        measured: list[tuple[int, float]] = []
        while updates:
            size = updates if self._done > 1 else 1
            start = time.perf_counter()
            state, more = dispatch_updates(trainer, state, size)
            jax.block_until_ready(state.updates)
            measured.append((size, time.perf_counter() - start))
            metrics += more
            updates, self._done, self._remaining = updates - size, self._done + size, self._remaining - size
            if self._done == 2:
                self._on_estimate(_num_updates(state) * trainer.config.batch, measured[-1][1] * self._remaining)
        counted = measured[1:] if self._done == sum(size for size, _ in measured) > 1 else measured
        seconds = sum(took for _, took in counted) / sum(size for size, _ in counted)
        return state, stack_metrics(metrics), seconds


def _num_updates(state: TrainState) -> int:
    return int(np.max(np.asarray(state.updates)))


def _non_finite_state(chunk: Chunk, state: TrainState) -> FaultDescription | None:
    return chunk.non_finite_state(
        agent=state.agent,
        optimizer=state.optimizer,
        obs_statistics=state.obs_statistics,
        return_statistics=state.return_statistics,
    )


def _stop_if(fault: FaultDescription | None, saved: Path | None) -> None:
    if fault is None:
        return
    saved_note = "Nothing was saved." if saved is None else f"The last good agent is in {saved}."
    message = f"{fault.message}, so training was stopped. {saved_note}"
    raise NonFiniteError(fault.quantity, fault.value, "a finite number", message)


def _chunks(training: Training, done: int) -> list[int]:
    """Updates per report; the same reports whether or not the training was interrupted."""
    total = training.config.num_updates
    size = -(-total // REPORTS)
    ends = [*range(size, total, size), total]
    return [end - max(done, end_before) for end_before, end in zip([0, *ends], ends, strict=False) if end > done]


def _report(
    training: Training, trainer: Trainer, state: TrainState, metrics: UpdateMetrics, seconds: float
) -> TrainingReport:
    returns = [None if np.isnan(value) else float(value) for value in np.asarray(metrics.last_return)[:, -1]]
    batch = trainer.config.batch
    speed = batch * training.seeds / seconds
    return TrainingReport(_num_updates(state) * batch, training.config.num_updates * batch, returns, speed)
