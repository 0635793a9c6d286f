"""Conversion of recordings to Minari datasets and back."""

import json
import warnings
from collections.abc import Iterator
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium
import minari
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_dataset import parse_dataset_id
from minari.storage.datasets_root_dir import get_dataset_path

from tropism.core.episode import Timestep
from tropism.core.session.session import Session
from tropism.errors import ValidationError
from tropism.gym.recording import make_registered, manifest_of, session_of
from tropism.gym.registration import NAMESPACE
from tropism.gym.spaces import to_gymnasium_space
from tropism.record import Manifest, Reader, RecordedEpisode, Writer
from tropism.record.columns import Column, JsonColumn, NumericColumn, StructColumn

METADATA_KEY = "tropism"  # for data that has no field in Minari's format
INFO = "json"


def to_minari(folder: str | Path, dataset_id: str, session: Session | None = None, **about: Any) -> Any:
    """Write the recordings in a folder as a local Minari dataset and return it.

    Text and messages (as JSON) are members of a Text space; infos are JSON too. Episodes without a step are
    skipped. `session` runs the environment; it is needed if the recordings do not contain how to make it.
    `about` is Minari's metadata of a dataset: author, description, …
    """
    _check_name(dataset_id)
    reader = Reader(folder)
    session = session or session_of(reader.manifest)
    numbers = [number for number in reader.episodes if len(reader[number])]
    if not numbers:
        raise ValidationError("folder", str(folder), "at least one episode with a step")
    text_stats, columns = _text_stats(reader, numbers), reader.manifest
    with warnings.catch_warnings():  # advice on missing metadata
        warnings.filterwarnings("ignore", "(?s).*(is set to None|env_spec is None)", UserWarning)
        dataset: Any = minari.create_dataset_from_buffers(
            dataset_id,
            (_buffer(reader[number]) for number in numbers),  # pyright: ignore[reportArgumentType]
            env=_spec(columns),
            observation_space=_space(columns.observation, session.observation_space, text_stats, "obs"),
            action_space=_space(columns.action, session.action_space, text_stats, "action"),
            data_format="parquet",
            jpeg_encoding=False,
            **about,
        )
    episodes = [_details(reader[number]) for number in numbers]
    dataset.storage.update_metadata({METADATA_KEY: {"manifest": columns.header(), "episodes": episodes}})
    return dataset


def from_minari(dataset_id: str, folder: str | Path) -> Reader:
    """Write a local Minari dataset as recordings and return them; a dataset of `to_minari` is restored exactly."""
    try:
        dataset: Any = minari.load_dataset(dataset_id)
    except (FileNotFoundError, ValueError) as error:
        raise ValidationError("dataset", dataset_id, f"a local Minari dataset ({error})") from None
    metadata = dataset.storage.metadata.get(METADATA_KEY)
    if metadata is None:
        manifest = manifest_of(dataset.env_spec, dataset.action_space, dataset.observation_space)
        details = dataset.storage.get_episode_metadata(dataset.episode_indices)
    else:
        manifest, details = Manifest.from_json(metadata["manifest"], dataset_id), metadata["episodes"]
    with Writer(folder, manifest) as writer:
        for data, detail in zip(dataset.iterate_episodes(), details, strict=True):
            _write(writer, data, detail)
    return Reader(folder)


def _check_name(dataset_id: str) -> None:
    expected = f"a name with a version, such as {NAMESPACE}/cartpole-v0"
    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError):
        raise ValidationError("dataset", dataset_id, expected) from None
    if get_dataset_path(dataset_id).exists():
        raise ValidationError("dataset", dataset_id, f"{expected}, that does not exist yet")


def _text_stats(reader: Reader, numbers: list[int]) -> dict[str, tuple[int, set[str]]]:
    """The maximum length and the set of characters of each text part."""
    text_stats: dict[str, tuple[int, set[str]]] = {}
    for episode in (reader[number] for number in numbers):
        values = {"obs": episode.observations, "action": episode.actions}
        for path, texts in chain(*(_text_leaves(episode.columns[name], values[name], name) for name in values)):
            longest, characters = text_stats.get(path, (0, set[str]()))
            text_stats[path] = max(longest, *map(len, texts)), characters.union(*texts)
    return text_stats


def _text_leaves(column: Column, stacked: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    if isinstance(column, StructColumn):
        for key, name, part in column.items():
            yield from _text_leaves(part, stacked[key], f"{path}.{name}")
    elif not isinstance(column, NumericColumn):
        yield path, _values(column, stacked)


def _space(column: Column, space: Any, text_stats: dict[str, tuple[int, set[str]]], path: str) -> Any:
    """The space in a form that Minari can store: Text with explicit characters, messages as text."""
    if isinstance(column, NumericColumn):
        return to_gymnasium_space(space)
    if isinstance(column, StructColumn):
        parts = {name: _space(part, space[key], text_stats, f"{path}.{name}") for key, name, part in column.items()}
        return spaces.Tuple(parts.values()) if column.ordered else spaces.Dict(parts)
    longest, characters = text_stats[path]
    return spaces.Text(max(1, longest), min_length=0, charset="".join(sorted(characters)) or " ")


def _values(column: Column, stacked: Any) -> Any:
    if isinstance(column, StructColumn):
        parts = {key: _values(part, stacked[key]) for key, _, part in column.items()}
        return tuple(parts.values()) if column.ordered else parts
    return [column.write(value) for value in stacked] if isinstance(column, JsonColumn) else stacked


def _buffer(episode: RecordedEpisode) -> EpisodeBuffer:
    texts = [text or "{}" for text in episode.info_texts]
    return EpisodeBuffer(
        seed=episode.seed,
        options=episode.options or None,
        observations=_values(episode.columns["obs"], episode.observations),
        actions=_values(episode.columns["action"], episode.actions),
        rewards=episode.rewards,  # pyright: ignore[reportArgumentType]
        terminations=episode.terminated,  # pyright: ignore[reportArgumentType]
        truncations=episode.truncated,  # pyright: ignore[reportArgumentType]
        infos={INFO: texts},
    )


def _details(episode: RecordedEpisode) -> dict[str, Any]:
    return {
        "episode_id": episode.id,
        "seed": episode.seed,
        "options": episode.options,
        "reseeds": list(episode.reseeds.items()),
    }


def _spec(manifest: Manifest) -> EnvSpec | None:
    """The spec from which Gymnasium makes the environment; None if params are not plain numbers."""
    env = manifest.env or {}
    if "gymnasium" in env:
        return _registered_spec(env["gymnasium"])
    if "id" not in env or not all(isinstance(value, int | float) for value in manifest.params.values()):
        return None
    spec = deepcopy(gymnasium.spec(f"{NAMESPACE}/{env['id']}"))
    params = {name.removeprefix("."): value for name, value in manifest.params.items()}
    spec.kwargs |= {**env["arguments"], "params": params}
    return spec


def _registered_spec(spec: dict[str, Any]) -> EnvSpec | None:
    try:
        env = make_registered(spec)
    except ValidationError:  # otherwise Minari would import code named by the recording
        return None
    env.close()
    return env.spec


def _write(writer: Writer, data: Any, detail: dict[str, Any]) -> None:
    reseeds = dict(detail.get("reseeds", ()))
    columns = writer.manifest
    observations, actions = _read(columns.observation, data.observations), _read(columns.action, data.actions)
    infos = [_info(data.infos, step) for step in range(len(data.rewards) + 1)]
    first = Timestep(columns.observation.pick(observations, 0), 0.0, False, False, infos[0])
    number = writer.begin(detail.get("seed"), detail.get("options"), first, detail.get("episode_id"))
    for step in range(1, len(data.rewards) + 1):
        reward, *ends = (values[step - 1].item() for values in (data.rewards, data.terminations, data.truncations))
        timestep = Timestep(columns.observation.pick(observations, step), reward, ends[0], ends[1], infos[step])
        writer.step(number, step, columns.action.pick(actions, step - 1), timestep, reseeds.get(step))


def _read(column: Column, values: Any) -> Any:
    if isinstance(column, StructColumn):
        parts = {key: _read(part, values[key]) for key, _, part in column.items()}
        return tuple(parts.values()) if column.ordered else parts
    return [json.loads(text) for text in values] if isinstance(column, JsonColumn) else values


def _info(infos: Any, step: int) -> dict[str, Any]:
    if not infos:
        return {}
    if set(infos) == {INFO}:
        return json.loads(str(infos[INFO][step]))
    return {name: _info(value, step) if isinstance(value, dict) else value[step] for name, value in infos.items()}
