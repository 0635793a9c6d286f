"""The command line: output, files, and errors."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence
from tests.cli.command import run

from tropism import cli, registered
from tropism.cli.train import describe_option
from tropism.core.registry import presets, unavailable_reasons
from tropism.train.algorithm import ALGORITHMS, algorithm_class


def test_list_prints_all_ids(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows if row["id"] not in unavailable_reasons()] == [spec.id for spec in registered()]
    assert all(row.get("summary") or row["id"] in unavailable_reasons() for row in rows)


def test_rollout_reports_episodes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "rollout", "GridWorld-v0", "--envs", "8", "--steps", "200", "--json") == 0
    row = json.loads(capsys.readouterr().out)
    assert row["steps"] == 1600
    assert row["episodes"] > 0
    assert 0 < row["mean_length"] <= 100


def test_params_and_arguments_reach_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--envs", "4", "--steps", "20", "--param", "max_steps=5", "--arg", "size=9", "--json")
    assert run(monkeypatch, "rollout", "GridWorld-v0", *options) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["mean_length"] == 5
    assert row["episodes"] == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rollout", "CartPol-v1"), "did you mean CartPole-v1"),
        (("check", "dot"), "A class of your own is named module:Class"),
        (("train", "CartPole-v1", "--resume", "-o", "nowhere"), "without --resume to start a training run"),
        (("rollout", "CartPole-v1", "--param", "gravity"), "NAME=VALUE"),
        (("rollout", "CartPole-v1", "--param", "gravty=1"), "gravity"),
        (("rollout", "GridWorld-v0", "--arg", "width=1"), "size"),
        (("check", "no_such_module:Env"), "no_such_module"),
        (("render", "GridWorld-v0", "-o", "film.avi"), ".gif, .mp4, .png"),
    ],
)
def test_invalid_input_gives_one_message_and_exit_code_2(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *arguments) == 2
    printed = capsys.readouterr().err
    assert "error:" in printed
    assert message in printed
    assert "Traceback" not in printed


OWN = """
from tropism.envs.grid_world import GridWorld


def halve(x):
    return x / 0


class Broken(GridWorld):
    def reset(self, key, params):
        return halve(1)


class Two(GridWorld):
    def reset(self, key, params):
        return 1
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("rollout", "own:Broken"),
        ("train", "own:Broken", "--total-steps", "2048", "--out", "trained"),
        ("evaluate", "GridWorld-v0", "--policy", "own:halve"),
        ("check", "own_sooner:Broken"),
        ("check", "own_unread:Broken"),
    ],
)
def test_exception_in_user_code_shows_only_user_frames(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"own": OWN, "own_sooner": "x = 1 / 0", "own_unread": "x = ("}
    for name, text in own.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 1
    printed = capsys.readouterr().err
    sys.modules.pop("own", None)
    assert "error: your own code raised" in printed
    files = [line.split('"')[1] for line in printed.splitlines() if line.startswith('  File "')]
    assert files
    assert {Path(file).parent for file in files} == {tmp_path}
    assert "JAX" not in printed


def test_invalid_values_of_a_user_environment_are_user_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "rollout", "own:Two") == 1
    printed = capsys.readouterr().err
    sys.modules.pop("own", None)
    assert "own:Two: compiling" in printed
    assert "own:Two failed" in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_movie_plume_reads_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    film = tmp_path / "film.npy"
    np.save(film, np.ones((3, 12, 16), np.float32))
    options = ("rollout", "PlumeNavMovie-v0", "--envs", "2", "--steps", "3", "--json", "--arg", f"recording={film}")
    numbers = ("--arg", "pixel_size=1", "--arg", "frame_rate=15", "--arg", "source_pixel=[6, 2]")
    assert run(monkeypatch, *options, *numbers) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 6
    assert run(monkeypatch, *options) == 2
    assert "film.npy does not contain it" in capsys.readouterr().err
    assert run(monkeypatch, *options[:-1], "recording=7") == 2
    assert "a PlumeRecording or the path of a file" in capsys.readouterr().err
    assert run(monkeypatch, *options[:-1], "recording=nowhere.npy") == 2
    assert "a file that exists" in capsys.readouterr().err
    assert run(monkeypatch, *options[:-2], *numbers) == 2
    assert "only for files" in capsys.readouterr().err


@pytest.mark.slow
def test_check_exit_codes(tmp_path: Path) -> None:
    broken = """
from tropism.envs.grid_world import GridWorld


class Broken(GridWorld):
    def step(self, key, state, action, params):
        obs, state, reward, done, info = super().step(key, state, action, params)
        return obs, state, reward * float("nan"), done, info
"""
    (tmp_path / "broken.py").write_text(broken)
    command = [sys.executable, "-m", "tropism", "check", "broken:Broken"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "finite-rewards" in done.stdout
    assert "engine of sessions" in done.stdout  # also of one that breaks a law


def test_render_writes_a_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "film.gif"
    assert run(monkeypatch, "render", "GridWorld-v0", "--param", "max_steps=5", "-o", str(path), "--fps", "25") == 0
    with Image.open(path) as image:  # equal pictures in a row are one frame, which is shown for longer
        assert sum(frame.info["duration"] for frame in ImageSequence.Iterator(image)) == 6 * 40 + 1000
    assert " 6/6 " in capsys.readouterr().err  # the bar ends with the episode, however short that was


def test_render_films_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "walk.py").write_text("def right_then_down(obs):\n    return 1 if obs[1] < 1 else 2\n")
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "render", "GridWorld-v0", "--policy", "walk:right_then_down", "-o", "film.gif") == 0
    assert "8 steps, return 0.93, terminated" in capsys.readouterr().out


def test_replay_films_one_recorded_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, film = str(tmp_path / "recordings"), tmp_path / "film.gif"
    options = ("--episodes", "2", "--steps", "4", "-o", folder)
    assert run(monkeypatch, "record", "GridWorld-v0", *options) == 0
    assert run(monkeypatch, "replay", folder, "-o", str(film)) == 2
    assert "--episode 0 to 1: a movie shows one episode" in capsys.readouterr().err
    assert run(monkeypatch, "replay", folder, "--episode", "1", "-o", str(film)) == 0
    with Image.open(film) as image:
        assert getattr(image, "n_frames", 1) > 1
        image.seek(image.n_frames - 1)  # pyright: ignore[reportAttributeAccessIssue]


def test_completion_can_be_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--help") == 0
    assert "--install-completion" in capsys.readouterr().out


@pytest.mark.slow
def test_render_writes_a_video(tmp_path: Path) -> None:
    """In a separate process: the encoder is started by a fork, for which JAX warns."""
    path = tmp_path / "film.mp4"
    command = [sys.executable, "-m", "tropism", "render", "GridWorld-v0", "--steps", "5", "-o", str(path)]
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert b"ftyp" in path.read_bytes()[:16]


def test_all_commands_have_an_example_in_their_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in cli.app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        assert run(monkeypatch, name, "--help") == 0
        assert "Example: tropism" in capsys.readouterr().out


def test_train_help_lists_the_presets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "train", "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for id, preset in presets("ppo").items():
        assert f"{id}" in text
        assert all(f"{name} {value}" in text for name, value in preset.items())


def test_train_help_has_the_defaults_of_each_algorithm() -> None:
    algorithms = [algorithm_class(name) for name in ALGORITHMS]
    assert describe_option("gamma", algorithms) == "Discount factor. Default 0.99."
    rate = (
        "Initial learning rate of Adam. Default 0.001. With q-learning: Step size of the table's entries. Default 0.1."
    )
    assert describe_option("learning_rate", algorithms).endswith(rate)
    assert not describe_option("teacher", algorithms).endswith("Default .")


@pytest.mark.slow
def test_check_accepts_a_class_based_environment(tmp_path: Path) -> None:
    agent = """
from dataclasses import dataclass
from tropism import Action, AgentEnvironment, Observation


@dataclass(frozen=True, kw_only=True)
class Wait(Action):
    seconds: int = 0


class Waiting(AgentEnvironment):
    deterministic = True

    def __init__(self, limit=3):
        self.limit, self.count = limit, 0

    def reset(self) -> Observation:
        return Observation()

    def step(self, action: Wait) -> Observation:
        self.count += 1
        return Observation(done=self.count >= self.limit)
"""
    (tmp_path / "waiting.py").write_text(agent)
    command = [sys.executable, "-m", "tropism", "check", "waiting:Waiting", "--arg", "limit=5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Waiting keeps all laws")


def test_train_writes_resumes_and_does_not_overwrite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small = ("train", "CartPole-v1", "--total-steps", "4096", "--num-envs", "4", "--out", str(tmp_path), "--json")
    assert run(monkeypatch, *small) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 4096
    assert Path(result["agent"]).exists()
    assert run(monkeypatch, *small) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(monkeypatch, *small, "--resume") == 0
    out, errors = capsys.readouterr()
    assert json.loads(out) == result
    assert errors == f"The training run in {tmp_path} is finished: 4,096 steps. Increase --total-steps to continue.\n"
    assert run(monkeypatch, *small, "--resume", "--total-steps", "6144") == 0
    assert "Resuming from step 4,096." in capsys.readouterr().err
    assert run(monkeypatch, *small, "--resume", "--seed", "3") == 2
    assert "as in the training run in" in capsys.readouterr().err


@pytest.mark.slow
def test_the_assay_counts_the_flights_that_reach_the_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "assay", "random", "--plume", "sparse", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["starts"] == 240
    assert list(printed["found"]) == ["sparse"]
    assert printed["found"]["sparse"]["published"] == [80, 158]
    assert 0 <= printed["found"]["sparse"]["random"] < 60


def test_the_assay_names_its_plumes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "assay", "random", "--plume", "dense") == 2
    assert "constant, sparse, switch once, switch many" in capsys.readouterr().err
