"""Checkpoints: the settings of a training run, the state to resume from, and the learning curve.

A file is a line with the version, a line of JSON (the settings by name, the learning curve, and the manifest: leaf
path, shape and dtype of each array), and the bytes of the arrays in that order, little-endian. A policy file has the
same format with the arrays of one policy, which is a fraction of the state.
"""

import json
import math
import os
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from tropism.core.episode import seed_words
from tropism.core.rollout.policy import Policy
from tropism.errors import ValidationError
from tropism.train.algorithm import algorithm_class
from tropism.train.training import Training
from tropism.train.updates import init_agents

MAGIC = b"tropism-train-"  # followed by the version
VERSION = 4
PART = ".part"  # suffix of a file that is being written


def save(path: Path, training: Training, state: Any, history: list[Any]) -> None:
    """Write a checkpoint atomically: if the process is killed, the previous checkpoint remains."""
    _write(path, training, state, {"history": history})


def save_policy(path: Path, training: Training, policy: Any) -> None:
    """Write a policy file, for evaluation only."""
    _write(path, training._replace(seeds=1), eqx.filter(policy, eqx.is_array), {"policy": True})


def _write(path: Path, training: Training, tree: Any, entries: dict[str, Any]) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    header = {
        **training.with_network_name()._asdict(),
        "algorithm": training.config.algorithm,
        "config": asdict(training.config),
        **entries,
        "arrays": [_spec(path, leaf) for path, leaf in leaves],
    }
    lines = MAGIC + f"{VERSION}\n{json.dumps(header)}\n".encode()
    write_atomically(path, lines + b"".join(np.asarray(leaf).tobytes() for _, leaf in leaves))


def _spec(path: Any, leaf: Any) -> dict[str, Any]:
    """The manifest's entry of an array."""
    return {"path": jax.tree_util.keystr(path), "shape": list(leaf.shape), "dtype": leaf.dtype.name}


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


def load(path: Path, network: Any = None) -> tuple[Training, Any, list[Any]]:
    """The settings, state and learning curve; `network` is needed if it cannot be imported by its name."""
    header, data = _read(path)
    if "policy" in header:
        raise ValidationError("checkpoint", str(path), "a checkpoint; a policy file is for evaluation only")
    training = _training(header, network)
    like = eqx.filter_eval_shape(init_agents, training.make_algorithm(), training.keys)
    return training, _fill(path, header, data, like), header["history"]


def load_policy(path: Path, number: int, greedy: bool, network: type | None = None) -> Policy:
    """Agent `number` of a checkpoint or policy file; `network` as for `load`."""
    header, data = _read(path)
    training = _training(header, network)
    if not 0 <= number < training.seeds:
        raise ValidationError("seed", number, f"one of the {training.seeds} agents of this training run, from 0")
    algorithm = training.make_algorithm()
    if "policy" not in header:
        state = load(path, network)[1]
        return algorithm.policy(jax.tree.map(lambda leaf: leaf[number], state), greedy)

    def start(key: Any) -> Policy:
        return algorithm.policy(algorithm.init(random.wrap_key_data(key)), greedy)

    like = eqx.filter_eval_shape(start, seed_words(training.seed))
    arrays, rest = eqx.partition(like, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return eqx.combine(_fill(path, header, data, arrays), rest)


def _fill(path: Path, header: dict[str, Any], data: memoryview, like: Any) -> Any:
    """A pytree of the shape of `like` with the arrays of a file."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    _check_manifest(path, header["arrays"], [_spec(*leaf) for leaf in leaves])
    arrays: list[Any] = []
    for _, leaf in leaves:
        size = math.prod(leaf.shape) * leaf.dtype.itemsize
        if len(data) < size:
            raise ValidationError("checkpoint", str(path), "a complete file; this one ends early")
        arrays.append(jnp.asarray(np.frombuffer(data[:size], leaf.dtype).reshape(leaf.shape)))
        data = data[size:]
    return structure.unflatten(arrays)


def _check_manifest(path: Path, stored: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Reject arrays other than those of the training run, naming the first that differs."""
    for found, wanted in zip_longest(stored, expected):
        if found != wanted:
            message = f"{path} does not fit its training run: it has {_format(found)}, expected {_format(wanted)}"
            raise ValidationError("checkpoint", str(path), _format(wanted), message)


def _format(spec: dict[str, Any] | None) -> str:
    return "no further array" if spec is None else f"{spec['path']} as {spec['dtype']}{spec['shape']}"


def load_training(path: Path) -> Training:
    """The settings of a training run, without its state."""
    return _training(_read(path)[0])


def load_history(path: Path) -> list[Any]:
    """The learning curve so far: rows of steps and one return per agent."""
    return _read(path)[0]["history"]


def load_steps(path: Path) -> int:
    """Environment steps per agent so far."""
    return int(load_history(path)[-1][0])


def _read(path: Path) -> tuple[dict[str, Any], memoryview]:
    """The header and the bytes of the arrays."""
    if not path.is_file():
        message = f"{path} does not exist; run `tropism train` without --resume to start a training run"
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train`", message)
    first, _, rest = path.read_bytes().partition(b"\n")
    if not first.startswith(MAGIC):
        raise ValidationError("checkpoint", str(path), "a file written by `tropism train`")
    version = first.removeprefix(MAGIC).decode(errors="replace")
    if version != str(VERSION):
        message = (
            f"{path} has checkpoint version {version}, this Tropism reads version {VERSION}: train the agent again"
        )
        raise ValidationError("checkpoint", str(path), f"version {VERSION} of `tropism train`", message)
    header, _, data = rest.partition(b"\n")
    try:
        return json.loads(header), memoryview(data)
    except ValueError:
        raise ValidationError("checkpoint", str(path), "a complete file; this one ends early") from None


def _training(header: dict[str, Any], network: Any = None) -> Training:
    config = algorithm_class(header["algorithm"]).Config(**header["config"])
    training = Training(**{name: header[name] for name in Training._fields} | {"config": config})
    return training if network is None else training._replace(network=network)
