"""A training on disk: what it was made of, and everything it goes on from."""

import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

import equinox as eqx

from tropism.core.episode import seed_words
from tropism.core.resolve import resolve_environment
from tropism.errors import ValidationError
from tropism.train.config import Config
from tropism.train.ppo import Trainer, TrainState, begin, start
from tropism.train.user_network import network_name

MAGIC = b"tropism-train-3\n"
PART = ".part"  # suffix of a file while it is written


class Training(NamedTuple):
    """What a training is made of: enough to make its trainer again."""

    id: str  # or module:Class
    arguments: dict[str, Any]
    params: dict[str, Any]
    config: Config
    seed: int
    seeds: int
    network: Any = None  # the user's own: a class, or module:Class

    def trainer(self) -> Trainer:
        return Trainer(*resolve_environment(self.id, self.params, self.arguments), self.config, self.network)

    @property
    def own_class(self) -> type | None:
        """The network where it is given as a class: then it need not be importable."""
        return self.network if isinstance(self.network, type) else None

    def named(self) -> "Training":
        """The training as a checkpoint records it, with the name of its network."""
        return self._replace(network=network_name(self.network))

    def start(self, trainer: Trainer) -> TrainState:
        """`seeds` agents, before their first update."""
        return start(trainer, seed_words(self.seed), self.seeds)


def save(path: Path, recipe: Training, train: TrainState, history: list[Any]) -> None:
    """Write a checkpoint under another name and then move it, so that a killed training leaves the previous one."""
    header = recipe.named()._asdict() | {"config": asdict(recipe.config), "history": history}
    body = io.BytesIO()
    eqx.tree_serialise_leaves(body, train)
    write(path, MAGIC + json.dumps(header).encode() + b"\n" + body.getvalue())


def write(path: Path, data: bytes) -> None:
    """Replace a file as a whole: readers find the old one or the new one, also after a crash."""
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


def load(path: Path, network: type | None = None) -> tuple[Training, TrainState, list[Any]]:
    """A training, its agents, and their learning curve; `network` is a class that the checkpoint cannot import."""
    with _opened(path) as file:
        recipe, history = _header(file)
        recipe = recipe if network is None else recipe._replace(network=network)
        like = eqx.filter_eval_shape(begin, recipe.trainer(), seed_words(recipe.seed), recipe.seeds)
        try:
            return recipe, eqx.tree_deserialise_leaves(file, like), history
        except (EOFError, OSError, RuntimeError, ValueError) as error:
            raise ValidationError("checkpoint", str(path), f"a whole file of this version ({error})") from None


def recipe_of(path: Path) -> Training:
    """What a training is made of, without its agents."""
    with _opened(path) as file:
        return _header(file)[0]


def history_of(path: Path) -> list[Any]:
    """The learning curve so far: steps, and a return for each agent."""
    with _opened(path) as file:
        return _header(file)[1]


def steps_of(path: Path) -> int:
    """The steps that a training has done, of each agent."""
    return int(history_of(path)[-1][0])


def _opened(path: Path) -> IO[bytes]:
    if not path.is_file():
        message = f"there is no {path}; `tropism train` without --resume begins a training"
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train`", message)
    file = path.open("rb")
    if file.readline() != MAGIC:
        file.close()
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train` of this version")
    return file


def _header(file: IO[bytes]) -> tuple[Training, list[Any]]:
    header = json.loads(file.readline())
    history = header.pop("history")
    return Training(**header | {"config": Config(**header["config"])}), history
