"""A training on disk: what it was made of, and everything it goes on from."""

import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

import equinox as eqx

from tropism.core.episode import seed_words
from tropism.core.imported import environment_of
from tropism.errors import ValidationError
from tropism.train.config import Config
from tropism.train.ppo import Trainer, TrainState, begin, start

MAGIC = b"tropism-train-2\n"


class Training(NamedTuple):
    """What a training is made of: enough to make its trainer again."""

    id: str  # or module:Class
    arguments: dict[str, Any]
    params: dict[str, Any]
    config: Config
    seed: int
    seeds: int

    def trainer(self) -> Trainer:
        return Trainer(*environment_of(self.id, self.params, self.arguments), self.config)

    def start(self, trainer: Trainer) -> TrainState:
        """`seeds` agents, before their first update."""
        return start(trainer, seed_words(self.seed), self.seeds)


def save(path: Path, recipe: Training, train: TrainState, history: list[Any]) -> None:
    """Written beside and then moved there, so that a killed training leaves the one before."""
    header = recipe._asdict() | {"config": asdict(recipe.config), "history": history}
    body = io.BytesIO()
    eqx.tree_serialise_leaves(body, train)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    with beside.open("wb") as file:
        file.write(MAGIC + json.dumps(header).encode() + b"\n" + body.getvalue())
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def load(path: Path) -> tuple[Training, TrainState, list[Any]]:
    """A training, its agents, and their learning curve."""
    with _opened(path) as file:
        recipe, history = _header(file)
        like = eqx.filter_eval_shape(begin, recipe.trainer(), seed_words(recipe.seed), recipe.seeds)
        try:
            return recipe, eqx.tree_deserialise_leaves(file, like), history
        except (EOFError, OSError, RuntimeError, ValueError) as error:
            raise ValidationError("checkpoint", str(path), f"a whole file of this version ({error})") from None


def recipe_of(path: Path) -> Training:
    """What a training is made of, without its agents."""
    with _opened(path) as file:
        return _header(file)[0]


def _opened(path: Path) -> IO[bytes]:
    if not path.is_file():
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train`")
    file = path.open("rb")
    if file.readline() != MAGIC:
        file.close()
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train` of this version")
    return file


def _header(file: IO[bytes]) -> tuple[Training, list[Any]]:
    header = json.loads(file.readline())
    history = header.pop("history")
    return Training(**header | {"config": Config(**header["config"])}), history
