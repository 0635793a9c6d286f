"""The recording wrapper, and datasets that Minari reads with its own API."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pyarrow.parquet as pq
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import ClipAction, TimeLimit
from jax import random
from tests.cli.command import run
from tests.record.full_disk import check_recorder_on_full_disk

from tropism import Session, make
from tropism.errors import StateError, ValidationError
from tropism.gym import Recording, session_of
from tropism.record import Reader, Recorder, first_difference


@pytest.fixture(autouse=True)
def separate_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def play(env: Any, seeds: list[int | None], steps: int = 9) -> None:
    for seed in seeds:
        env.reset(seed=seed)
        env.action_space.seed(0)
        for _ in range(steps):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                break


def count_verified(folder: Path) -> int:
    """Replay all episodes; returns their number."""
    reader = Reader(folder)
    session = session_of(reader.manifest)
    assert [first_difference(session, episode) for episode in reader] == [None] * len(reader)
    return len(reader)


def test_check_env_passes_and_all_of_it_is_recorded(tmp_path: Path):
    env = Recording(gymnasium.make("tropism/CartPole-v1"), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is a wrapper, and that its box has no bounds
        check_env(env)
    env.close()
    assert count_verified(tmp_path) > 3


@pytest.mark.parametrize("id", ["Pendulum-v1", "Echo-v0", "ConnectFour-v0"])
def test_a_tropism_environment_can_be_replayed_without_a_seed(id: str, tmp_path: Path):
    env = Recording(gymnasium.make(f"tropism/{id}"), tmp_path)
    with pytest.raises(StateError, match="reset"):
        env.step(env.action_space.sample())
    play(env, [3, None, None])
    env.close()
    assert count_verified(tmp_path) == 3


def test_other_environments_and_wrappers_are_recorded_by_their_spec(tmp_path: Path):
    for name, env in {
        "theirs": gymnasium.make("CartPole-v1"),
        "wrapped": gymnasium.make("tropism/CartPole-v1"),
    }.items():
        recording = Recording(TimeLimit(env, 5), tmp_path / name)
        play(recording, [1, 2])
        play(recording, [None])
        recording.close()
        reader = Reader(tmp_path / name)
        assert [len(episode) for episode in reader] == [5, 5, 5]
        assert all(episode.truncated[-1] for episode in reader)
        session = session_of(reader.manifest)
        assert [first_difference(session, reader[number]) for number in (0, 1)] == [None, None]
        with pytest.raises(ValidationError, match="started without one"):
            first_difference(session, reader[2])


def test_code_named_by_a_recording_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    recording = Recording(gymnasium.make("CartPole-v1"), tmp_path / "there")
    play(recording, [1])
    recording.close()
    path = tmp_path / "there" / "manifest.json"
    manifest, mark = json.loads(path.read_text()), tmp_path / "mark"
    wrapper = {"name": "Mine", "entry_point": "os:mkdir", "kwargs": {"mode": 0}}
    for change, message in (
        ({"entry_point": "os:mkdir", "kwargs": {"path": str(mark)}}, "gymnasium.envs.classic_control.cartpole"),
        ({"additional_wrappers": [wrapper]}, "the registered ones of CartPole-v1"),
        ({"id": "antigravity:CartPole-v1"}, "registered with Gymnasium"),
    ):
        spec = manifest["env"]["gymnasium"] | change
        path.write_text(json.dumps(manifest | {"env": {"gymnasium": spec}}))
        assert run(monkeypatch, "replay", str(tmp_path / "there")) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert not mark.exists()
        assert "antigravity" not in sys.modules


def test_wrappers_are_passed_and_the_export_does_not_name_them(tmp_path: Path):
    import minari

    from tropism.gym import from_gymnasium, to_minari

    env = ClipAction(gymnasium.make("Pendulum-v1"))
    recording = Recording(env, tmp_path)
    play(recording, [1])
    recording.close()
    reader, session = Reader(tmp_path), Session(from_gymnasium(env))
    with pytest.raises(ValidationError, match="a session of the environment, made by you"):
        session_of(reader.manifest)
    assert first_difference(session, reader[0]) is None
    to_minari(tmp_path, "wrapped-v0", session)
    dataset: Any = minari.load_dataset("wrapped-v0")
    assert dataset.env_spec is None


@pytest.mark.parametrize("id", ["CartPole-v1", "tropism/CartPole-v1"])
def test_unrecorded_steps_are_not_added_to_the_previous_episode(
    id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    check_recorder_on_full_disk(Recording(gymnasium.make(id), tmp_path), tmp_path, monkeypatch)


def test_a_vector_is_rejected(tmp_path: Path):
    with pytest.raises(ValidationError, match="one by one"):
        Recording(gymnasium.make_vec("tropism/CartPole-v1", num_envs=2), tmp_path)


def record(id: str, folder: Path, **arguments: Any) -> Session:
    session = Session(*make(id, **arguments))
    with Recorder(session, folder) as recorder:
        for seed in (2**63 + 1, None):
            timestep = recorder.reset(seed=seed)
            while session.step_count < 8 and not (timestep.terminated or timestep.truncated):
                action = session.action_space.sample(random.key(session.step_count))
                timestep = recorder.step(session.action_space.coerce(action))
        recorder.reset(seed=9)  # never stepped: Minari cannot store it
    return session


@pytest.mark.slow
@pytest.mark.parametrize(
    "id", ["CartPole-v1", "Pendulum-v1", "PixelGridWorld-v0", "ConnectFour-v0", "Echo-v0", "Chat-v0"]
)
def test_minari_reads_the_export_and_the_import_is_exact(id: str, tmp_path: Path):
    import minari

    from tropism.gym import from_minari, to_minari

    record(id, tmp_path / "there")
    to_minari(tmp_path / "there", "tropism/some-v0")
    dataset: Any = minari.load_dataset("tropism/some-v0")
    there = [episode for episode in Reader(tmp_path / "there") if len(episode)]
    assert dataset.total_episodes == len(there) == 2
    assert dataset.total_steps == sum(map(len, there))
    for data, episode in zip(dataset.iterate_episodes(), there, strict=True):
        check_against_spaces(dataset, data)
        assert data.rewards.tobytes() == episode.rewards.tobytes()
        assert data.terminations.tolist() == episode.terminated.tolist()
        assert len(data.infos["json"]) == len(episode) + 1
    back = from_minari("tropism/some-v0", tmp_path / "back")
    assert back.manifest.subject == Reader(tmp_path / "there").manifest.subject
    rows = [pq.read_table(next((tmp_path / name).glob("*.parquet"))) for name in ("there", "back")]
    assert rows[1].equals(rows[0].slice(0, len(rows[1])))
    assert count_verified(tmp_path / "back") == 2


def check_against_spaces(dataset: Any, data: Any) -> None:
    """As Minari's own tests check a dataset."""

    def pick(values: Any, index: int) -> Any:
        if isinstance(values, dict):
            return {name: pick(part, index) for name, part in values.items()}
        return tuple(pick(part, index) for part in values) if isinstance(values, tuple) else values[index]

    for step in range(len(data)):
        assert dataset.action_space.contains(pick(data.actions, step))
        assert dataset.observation_space.contains(pick(data.observations, step))
    assert dataset.observation_space.contains(pick(data.observations, len(data)))


def test_minari_recovers_the_environment_and_it_reproduces_the_episode(tmp_path: Path):
    import minari

    from tropism.gym import to_minari

    session = Session(*make("GridWorld-v0", size=7, params={"max_steps": 6}))
    with Recorder(session, tmp_path) as recorder:
        recorder.reset(seed=4)
        for action in (1, 1, 2, 2, 1, 1):
            recorder.step(action)
    to_minari(tmp_path, "grid-v0", author="Ada")
    dataset: Any = minari.load_dataset("grid-v0")
    env, data = dataset.recover_environment(), dataset[0]
    [metadata] = dataset.storage.get_episode_metadata([0])
    obs, _ = env.reset(seed=metadata["seed"])
    assert (obs == data.observations[0]).all()
    for step, action in enumerate(data.actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        assert (obs == data.observations[step + 1]).all()
        assert (reward, terminated, truncated) == (data.rewards[step], data.terminations[step], data.truncations[step])
    assert data.truncations[-1]


def test_a_foreign_dataset_is_imported_and_replayed(tmp_path: Path):
    import minari
    from minari.data_collector import EpisodeBuffer

    from tropism.gym import from_minari

    env = gymnasium.make("CartPole-v1")
    seen = [env.reset(seed=5), *(env.step(1)[::4] for _ in range(3))]
    lists: Any = {"rewards": [1.0] * 3, "terminations": [False] * 3, "truncations": [False, False, True]}
    infos = {"half": np.arange(4) / 2, "more": {"pair": np.ones((4, 2))}}
    episode = EpisodeBuffer(seed=5, observations=[obs for obs, _ in seen], actions=[1, 1, 1], infos=infos, **lists)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no author
        minari.create_dataset_from_buffers("theirs/cartpole-v0", [episode], "CartPole-v1")
    reader = from_minari("theirs/cartpole-v0", tmp_path / "ours")
    assert reader[0].infos[3] == {"half": 1.5, "more": {"pair": [1.0, 1.0]}}
    found = first_difference(session_of(reader.manifest), reader[0])
    assert found is not None
    assert (found.step, found.name) == (3, "truncated")  # which was made up


def test_forks_are_restored_as_separate_episodes(tmp_path: Path):
    from tropism.gym import from_minari, to_minari

    session = Session(*make("ConnectFour-v0", opponent="random"))
    with Recorder(session, tmp_path / "there") as recorder:
        recorder.reset(seed=0)
        root, writer = recorder.episode or 0, recorder.writer
        twin = session.fork(seed=5)
        number = writer.fork(root, 0, twin.timestep, 5)
        recorder.step(3)
        writer.step(number, 1, 3, twin.step(3))
        writer.step(number, 2, 4, twin.step(4))
    to_minari(tmp_path / "there", "forks-v0")
    back = from_minari("forks-v0", tmp_path / "back")
    assert (back[1].reseeds, back[1].parent) == ({1: 5}, None)
    assert count_verified(tmp_path / "back") == count_verified(tmp_path / "there") == 2


def test_the_commands_export_and_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    record("GridWorld-v0", tmp_path / "there")
    assert run(monkeypatch, "minari", "export", there, "grid-v3") == 0
    assert "grid-v3: 2 episodes" in capsys.readouterr().out
    assert run(monkeypatch, "minari", "import", "grid-v3", back) == 0
    assert run(monkeypatch, "replay", back, "--verify", "--json") == 0
    capsys.readouterr()
    for arguments, message in (
        (("export", there, "grid-v3"), "does not exist yet"),
        (("export", there, "grid"), "a name with a version"),
        (("import", "nothing-v0", back), "a local Minari dataset"),
    ):
        assert run(monkeypatch, "minari", *arguments) == 2
        assert message in capsys.readouterr().err
