"""Starts or resumes a training run, with progress reports and a learning curve."""

import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tropism.core.devices import to_host
from tropism.errors import NonFiniteError, ObservationWarning, ValidationError
from tropism.train import checkpoint
from tropism.train.algorithm import Algorithm
from tropism.train.faults import Chunk, FaultDescription
from tropism.train.training import Training
from tropism.train.updates import run_updates

REPORTS = 50  # per training run
CHECKPOINT = "agent.tropism"

EstimateCallback = Callable[[int, float], None]  # called with the steps done and the seconds remaining


def _ignore(_steps: int, _seconds: float) -> None:
    """Discard the estimate."""


class TrainingReport(NamedTuple):
    """Progress of a training run; `returns` has, per agent, the mean return of its environments' last episodes."""

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
    training: Training,
    out: Path,
    resume: bool = False,
    on_estimate: EstimateCallback = _ignore,
    devices: Any = None,
) -> Iterator[tuple[TrainingReport, Any]]:
    """Train, yielding a report and the state each time a checkpoint was written to `out`; may be stopped at any time.

    `on_estimate` is called once, after the first two updates, with the estimated remaining time. A NaN or infinite
    number raises NonFiniteError and is not saved; the first observation outside its space causes a warning.
    `devices="all"` spreads the environments of each agent over all devices.
    """
    path = out / CHECKPOINT
    algorithm, state, history = _start(training, path, resume)
    batch, total = training.config.batch, training.config.num_updates
    done, warned = history[-1][0] // batch if history else 0, False
    for number, (updates, is_report) in enumerate(_segments(total, done)):
        start = time.perf_counter()
        state, metrics = run_updates(algorithm, state, updates, devices)
        seconds = (time.perf_counter() - start) / updates
        chunk = Chunk(training.config, done, metrics.fault, metrics.loss)
        fault = chunk.first_non_finite() or chunk.non_finite_state(**algorithm.finite_parts(state))
        _stop_if(fault, path if history else None)
        warned = warned or _warn_if(chunk.first_outside_space(algorithm.observation_space))
        done += updates
        if number == 1:
            on_estimate(done * batch, seconds * (total - done))
        if is_report:
            returns = [None if np.isnan(value) else float(value) for value in np.asarray(metrics.last_return)[:, -1]]
            report = TrainingReport(done * batch, total * batch, returns, batch * training.seeds / seconds)
            history.append([report.steps, report.returns])
            checkpoint.save(path, training, to_host(state), history)
            yield report, state


def train(
    training: Training,
    out: Path,
    show: Callable[[TrainingReport], None] = lambda _report: None,
    resume: bool = False,
    on_estimate: EstimateCallback = _ignore,
    devices: Any = None,
) -> tuple[Any, list[Any]]:
    """Train to the end and return the state and the learning curve; resuming gives the same result bit for bit."""
    for report, _ in train_in_chunks(training, out, resume, on_estimate, devices):
        show(report)
    training, state, history = checkpoint.load(out / CHECKPOINT, training.network)
    checkpoint.write_atomically(out / "curve.json", f"{json.dumps({'id': training.id, 'curve': history})}\n".encode())
    return state, history


def _start(training: Training, path: Path, resume: bool) -> tuple[Algorithm, Any, list[Any]]:
    algorithm = training.make_algorithm()
    if not resume:
        return algorithm, training.start(algorithm), []
    check_resumable(path, training)
    _, state, history = checkpoint.load(path, training.network)
    return algorithm, state, history


def check_resumable(path: Path, requested: Training) -> None:
    """Reject changed settings; only `total_steps` may differ, but not be less than the steps done."""
    stored, steps = checkpoint.load_training(path), checkpoint.load_steps(path)
    config = replace(requested.config, total_steps=stored.config.total_steps)
    same = requested.with_network_name()._replace(config=config)
    if same != stored:
        raise ValidationError("resume", str(path), f"the settings it was started with, {stored}; not {requested}")
    if requested.config.num_updates * requested.config.batch < steps:
        expected = f"at least {steps:,}, the steps already done in {path.parent}"
        raise ValidationError("total_steps", requested.config.total_steps, expected)


def _stop_if(fault: FaultDescription | None, saved: Path | None) -> None:
    if fault is None:
        return
    saved_note = "Nothing was saved." if saved is None else f"The last good agent is in {saved}."
    message = f"{fault.message}, so training was stopped. {saved_note}"
    raise NonFiniteError(fault.quantity, fault.value, "a finite number", message)


def _warn_if(fault: FaultDescription | None) -> bool:
    """Whether there was a fault to warn of."""
    if fault is not None:
        message = f"{fault.message}. Training continues; further ones are not reported."
        warnings.warn(message, ObservationWarning, stacklevel=3)
    return fault is not None


def _segments(total: int, done: int) -> list[tuple[int, bool]]:
    """Numbers of updates to run at once, and whether a report follows.

    There are the same reports whether or not the run was interrupted. The first two updates run one by one: the first
    compiles, and the second gives the estimate.
    """
    size = -(-total // REPORTS)
    reports = {*range(size, total, size), total}
    ends = [end for end in sorted(reports | {done + 1, done + 2}) if done < end <= total]
    return [(end - before, end in reports) for before, end in pairwise([done, *ends])]
