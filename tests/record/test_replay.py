"""Replays are identical, and differences are reported."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from jax import random
from tests.cli.command import run
from tests.serve.lab import Unwritable

from tropism import Action, AgentEnvironment, Observation, Session, make
from tropism.core.session.session import EnvironmentState
from tropism.errors import StateError, ValidationError
from tropism.record import Reader, Recorder, first_difference, session_of
from tropism.record import replay as again

SOME = ["CartPole-v1", "ConnectFour-v0", "Echo-v0", "Chat-v0", "PixelGridWorld-v0"]


@pytest.mark.slow
@pytest.mark.parametrize("id", SOME)
def test_replay_is_identical_bit_for_bit(id: str, tmp_path: Path):
    session = Session(*make(id))
    with Recorder(session, tmp_path) as recorder:
        for _ in range(2):  # the second seed is drawn
            timestep = recorder.reset()
            while session.step_count < 12 and not (timestep.terminated or timestep.truncated):
                timestep = recorder.step(session.action_space.sample(random.key(session.step_count)))
    reader = Reader(tmp_path)
    assert len(reader) == 2
    assert all(len(episode) for episode in reader)
    again = session_of(reader.manifest)
    assert [first_difference(again, episode) for episode in reader] == [None, None]
    changed = reader[1]
    other = replace(changed, rewards=changed.rewards + 1e-12)
    found = first_difference(again, other)
    assert found is not None
    assert (found.step, found.name) == (1, "reward")


def test_reseeded_forks_replay(tmp_path: Path):
    session = Session(*make("ConnectFour-v0", opponent="random"))
    with Recorder(session, tmp_path) as recorder:
        recorder.reset(seed=1)
        for column in (0, 1, 2):
            recorder.step(column)
        root, writer = recorder.episode, recorder.writer
        assert root is not None
        twin = session.fork(seed=77)
        number = writer.fork(root, twin.step_count, twin.timestep, 77, twin.episode_id)
        for column in (6, 5, 4):
            timestep = twin.step(column)
            writer.step(number, twin.step_count, column, timestep)
    reader = Reader(tmp_path)
    assert first_difference(session_of(reader.manifest), reader[number]) is None
    astray = replace(reader[number], reseeds={})
    found = first_difference(session_of(reader.manifest), astray)
    assert found is not None
    assert found.step > 3


def test_replay_leaves_the_session_open(tmp_path: Path):
    with Recorder(Session(*make("ConnectFour-v0", opponent="random")), tmp_path) as recorder:
        recorder.reset(seed=1)
        for column in (0, 1, 2):
            recorder.step(column)
    [episode], session = Reader(tmp_path), Session(*make("ConnectFour-v0", opponent="random"))
    other = replace(episode, rewards=episode.rewards + 1, reseeds={1: 5, 2: 7})
    assert len(list(again(session, other))) == 4
    assert session.seed == 7
    assert first_difference(session, other) is not None  # which stops it after its first step
    assert session.lifecycle is EnvironmentState.READY


def test_replay_uses_options_and_params(tmp_path: Path):
    session = Session(*make("CartPole-v1", params={"gravity": 3.7}))
    with Recorder(session, tmp_path) as recorder:
        recorder.reset(seed=0, options={"params": {"length": 2.0}})
        recorder.step(1)
        recorder.step(0)
    reader = Reader(tmp_path)
    again = session_of(reader.manifest)
    assert again.params.gravity == 3.7
    assert first_difference(again, reader[0]) is None
    found = first_difference(again, replace(reader[0], options={}))
    assert found is not None
    assert found.name == "obs"


@dataclass(frozen=True, kw_only=True)
class EpisodeIdObservation(Observation):
    name: str = ""


class Named(AgentEnvironment):
    """Observes the id of its episode."""

    deterministic = True

    def reset(self, episode_id: str = "") -> EpisodeIdObservation:
        self.name = episode_id
        return EpisodeIdObservation(name=self.name)

    def step(self, action: Action) -> EpisodeIdObservation:
        return EpisodeIdObservation(name=self.name, reward=1.5)


def test_replay_uses_the_episode_id(tmp_path: Path):
    session = Session(Named)
    with Recorder(session, tmp_path) as recorder:
        first = recorder.reset(seed=0)
        recorder.step({})
    [episode] = Reader(tmp_path)
    assert episode.observations[1]["name"] == episode.id == first.obs.name
    assert first_difference(Session(Named), episode) is None


def test_non_replayable_recordings_are_rejected(tmp_path: Path):
    session = Session(Unwritable())
    with Recorder(session, tmp_path) as recorder:
        recorder.reset(seed=0)
        recorder.step(0)
    reader = Reader(tmp_path)
    with pytest.raises(StateError, match="Unwritable declares that it cannot be replayed"):
        first_difference(session, reader[0])
    with pytest.raises(ValidationError, match="a registered id"):
        session_of(reader.manifest)


def test_record_and_replay_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "mine.py").write_text("def left(obs): return 0\n")
    monkeypatch.chdir(tmp_path)
    record = ("record", "CartPole-v1", "-o", "out", "--episodes", "3", "--param", "gravity=3.7", "--json")
    assert run(monkeypatch, *record) == 0
    told = json.loads(capsys.readouterr().out)
    assert run(monkeypatch, *record, "--policy", "mine:left", "--seed", "3", "--steps", "5") == 0
    capsys.readouterr()
    reader = Reader("out")
    assert sum(len(reader[number]) for number in range(3)) == told["steps"]
    assert [episode.seed for episode in reader] == list(range(6))
    assert reader[4].actions.tolist() == [0] * 5
    assert run(monkeypatch, "replay", "out", "--verify") == 0
    assert "6 of 6 episodes" in capsys.readouterr().out
    assert run(monkeypatch, "replay", "out", "--episode", "4", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"episode": 4, "seed": 4, "steps": 5, "return": 5.0}]
    manifest = Path("out/manifest.json")
    text = manifest.read_text().replace('"gravity": 3.7', '"gravity": 3.8')
    manifest.write_text(text.replace('"tropism": "', '"tropism": "0.0.'))
    assert run(monkeypatch, "replay", "out", "--verify") == 1
    printed = capsys.readouterr().out
    assert "episode 0 differs at step 1: obs was" in printed
    assert "recorded with {'tropism': '0.0." in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("replay", "nowhere"), "a folder of recordings"),
        (("replay", "nowhere", "--param", "gravity=1"), "--env with --param or --arg"),
        (("replay", "nowhere", "--arg", "size=7"), "--env with --param or --arg"),
        (("record", "CartPole-v1", "-o", "out", "--policy", "clever"), "module:function"),
        (("record", "CartPole-v1", "-o", "/proc/nothing"), "a writable folder"),
    ],
)
def test_invalid_input_gives_one_message(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 2
    assert message in capsys.readouterr().err


def test_class_without_an_id_is_replayed_with_recorded_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    lines = ("from tropism.envs.grid_world import GridWorld", "class Mine(GridWorld): pass", "class Other(Mine): pass")
    (tmp_path / "worlds_of_mine.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    record = ("record", "worlds_of_mine:Mine", "-o", "out", "--param", "max_steps=5", "--arg", "size=7")
    assert run(monkeypatch, *record, "--episodes", "2") == 0
    assert Reader("out").manifest.env == {"class": "worlds_of_mine:Mine", "arguments": {"size": 7}}
    assert run(monkeypatch, "replay", "out", "--env", "worlds_of_mine:Mine", "--verify") == 0
    assert run(monkeypatch, "replay", "out", "--env", "worlds_of_mine:Mine", "--verify", "--param", "max_steps=3") == 1
    capsys.readouterr()
    assert run(monkeypatch, "replay", "out") == 2
    assert "--env worlds_of_mine:Mine" in capsys.readouterr().err
    assert run(monkeypatch, *record[:1], "worlds_of_mine:Other", *record[2:]) == 2
    assert "another folder" in capsys.readouterr().err
