"""Columns round-trip values bit for bit, for all spaces."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from jax import random
from tests.core.spaces.examples import EVERY

from tropism import Box, Dict, Discrete, Space, Timestep, Tuple
from tropism.record import Manifest, Reader, RecordedEpisode, Writer
from tropism.record.columns import bitwise_equal, column_from_json, column_of

SPACES: list[Space] = [
    *EVERY,
    Box(-1.0, 1.0, (2, 3, 2), np.float16),
    Box(0.0, 1.0, (0,)),
    Dict(),
    Dict(a=Tuple((Box(-9, 9, (3,), np.int64), Discrete(4))), b=Dict(c=Box(0.0, 1.0, (2, 2)))),
]


@pytest.mark.parametrize("number", range(len(SPACES)), ids=lambda number: repr(SPACES[number]))
def test_episode_round_trips_through_tails_and_shards(number: int, tmp_path: Path):
    obs, action = SPACES[number], SPACES[-number]
    seen = [obs.sample(random.key(number)) for number in range(4)]
    done = [action.coerce(action.sample(random.key(number))) for number in range(3)]
    writer = Writer(tmp_path, Manifest.for_spaces(None, {}, action, obs), shard_rows=3)
    episode = writer.begin(7, {"a": [1, {"b": None}]}, Timestep(seen[0], 0.0, False, False, {}), "x")
    for step, (value, taken) in enumerate(zip(seen[1:], done, strict=True), 1):
        writer.step(episode, step, taken, Timestep(value, 0.1 * step, step == 3, False, {"at": np.float32(step)}))
    check_complete(Reader(tmp_path)[episode], obs, action, seen, done)  # a shard and a tail, or two tails
    writer.close()
    check_complete(Reader(tmp_path)[episode], obs, action, seen, done)
    assert len(list(tmp_path.glob("*.parquet"))) == 2


def check_complete(episode: RecordedEpisode, obs: Space, action: Space, seen: list[Any], done: list[Any]) -> None:
    write, write_action = column_of(obs).write, column_of(action).write
    assert all(bitwise_equal(write(value), write(episode.observation(step))) for step, value in enumerate(seen))
    assert all(
        bitwise_equal(write_action(value), write_action(episode.action(step))) for step, value in enumerate(done, 1)
    )
    assert all(action.contains(action.coerce(episode.action(step))) for step in (1, 2, 3))
    assert (episode.seed, episode.options, episode.id, len(episode)) == (7, {"a": [1, {"b": None}]}, "x", 3)
    assert episode.rewards.tolist() == [0.1 * step for step in (1, 2, 3)]
    assert episode.terminated.tolist() == [False, False, True]
    assert not episode.truncated.any()
    assert episode.infos == [{}, {"at": 1.0}, {"at": 2.0}, {"at": 3.0}]


def test_column_round_trips_through_its_description():
    for space in SPACES:
        assert column_from_json(column_of(space).describe()) == column_of(space)


def test_nan_infinity_and_minus_zero_are_preserved(tmp_path: Path):
    odd = np.array([np.nan, -np.inf, -0.0], np.float32)
    with Writer(tmp_path, Manifest.for_spaces(None, {}, Discrete(2), Box(0.0, 1.0, (3,)))) as writer:
        number = writer.begin(0, None, Timestep(odd, 0.0, False, False, {}))
    assert Reader(tmp_path)[number].observations.tobytes() == odd.tobytes()
    assert not bitwise_equal(odd, np.abs(odd))


def test_shards_are_readable_with_plain_pyarrow(tmp_path: Path):
    """Without importing Tropism."""
    space = Dict(at=Box(0.0, 9.0, (2,)), room=Discrete(3))
    with Writer(tmp_path, Manifest.for_spaces(None, {}, Discrete(2), space)) as writer:
        for seed in (4, 5):
            at = np.array([seed, 1], np.float32)
            number = writer.begin(seed, None, Timestep({"at": at, "room": 1}, 0.0, False, False, {}))
            writer.step(number, 1, 1, Timestep({"at": at + 1, "room": 2}, 0.5, True, False, {}))
    table = pq.read_table(tmp_path.glob("*.parquet").__next__())
    first, second, *_ = table.to_pylist()
    assert first["obs"] == {"at": [4.0, 1.0], "room": 1}
    assert (first["episode"], first["step"], first["seed"], first["action"]) == (0, 0, 4, None)
    assert (second["action"], second["reward"], second["terminated"], second["truncated"]) == (1, 0.5, True, False)
    assert table["episode"].to_pylist() == [0, 0, 1, 1]
