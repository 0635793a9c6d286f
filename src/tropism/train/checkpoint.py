"""Checkpoints: the settings of a training run, the state to resume from, and the learning curve."""

import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import equinox as eqx

from tropism.core.episode import seed_words
from tropism.errors import ValidationError
from tropism.train.algorithm import algorithm_class
from tropism.train.training import Training
from tropism.train.updates import init_agents

MAGIC = b"tropism-train-3\n"
PART = ".part"  # suffix of a file that is being written


def save(path: Path, training: Training, train: Any, history: list[Any]) -> None:
    """Write a checkpoint atomically: if the process is killed, the previous checkpoint remains."""
    header = training.with_network_name()._asdict() | {
        "algorithm": training.config.algorithm,
        "config": asdict(training.config),
        "history": history,
    }
    body = io.BytesIO()
    eqx.tree_serialise_leaves(body, train)
    write_atomically(path, MAGIC + json.dumps(header).encode() + b"\n" + body.getvalue())


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically: readers see the old or the new content, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(PART)
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: Path, network: type | None = None) -> tuple[Training, Any, list[Any]]:
    """The settings, state and learning curve; `network` is a class that cannot be imported by its name."""
    with _open(path) as file:
        training, history = _read_header(file)
        training = training if network is None else training._replace(network=network)
        like = eqx.filter_eval_shape(init_agents, training.make_algorithm(), seed_words(training.seed), training.seeds)
        try:
            return training, eqx.tree_deserialise_leaves(file, like), history
        except (EOFError, OSError, RuntimeError, ValueError) as error:
            raise ValidationError("checkpoint", str(path), f"a complete file of this version ({error})") from None


def load_training(path: Path) -> Training:
    """The settings of a training run, without its state."""
    with _open(path) as file:
        return _read_header(file)[0]


def load_history(path: Path) -> list[Any]:
    """The learning curve so far: rows of steps and one return per agent."""
    with _open(path) as file:
        return _read_header(file)[1]


def load_steps(path: Path) -> int:
    """Environment steps per agent so far."""
    return int(load_history(path)[-1][0])


def _open(path: Path) -> IO[bytes]:
    if not path.is_file():
        message = f"{path} does not exist; run `tropism train` without --resume to start a training"
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train`", message)
    file = path.open("rb")
    if file.readline() != MAGIC:
        file.close()
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train` of this version")
    return file


def _read_header(file: IO[bytes]) -> tuple[Training, list[Any]]:
    header = json.loads(file.readline())
    history = header.pop("history")
    config = algorithm_class(header.pop("algorithm")).Config(**header["config"])
    return Training(**header | {"config": config}), history
