"""The command show."""

import json
from pathlib import Path

import pytest
from tests.ids import mark_slow
from typer.testing import CliRunner

from tropism import registered
from tropism.cli import app

OWN = """
from tropism.envs.grid_world import GridWorld, GridWorldParams

class OwnParams(GridWorldParams):
    wind: float = 0.25  # m/s

class Own(GridWorld):
    \"\"\"Reward: whatever the wind brings.\"\"\"

    def default_params(self):
        return OwnParams()
"""


def show(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["show", *arguments], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("id", mark_slow(spec.id for spec in registered()))
def test_all_environments_document_reward_and_termination(id: str) -> None:
    text = show(id)
    assert "\nReward: " in text
    assert "\nEnds: " in text


def test_spaces_params_with_units_arguments_and_options_are_shown() -> None:
    about = json.loads(show("CartPole-v1", "--param", "gravity=3.7", "--json"))
    assert {"name": "gravity", "value": 3.7, "comment": "m/s²"} in about["params"]
    assert about["action_space"] == "Discrete(2)"
    assert about["action_names"] == ["left", "right"]
    assert about["observation_names"][2] == "pole angle"
    plume = json.loads(show("PlumeNavMeander-v0", "--json"))
    assert {"name": "field.speed", "value": 2.0, "comment": "length units/s"} in plume["params"]
    assert plume["arguments"] == {"trail": 0}
    assert plume["reset_options"] == ["params", "start_location", "source_location"]


def test_user_class_is_shown_with_its_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_maze.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    about = json.loads(show("own_maze:Own", "--json"))
    assert about["description"] == "Reward: whatever the wind brings."
    assert {"name": "wind", "value": 0.25, "comment": "m/s"} in about["params"]
    assert {"name": "max_steps", "value": 100, "comment": "steps until truncation"} in about["params"]
