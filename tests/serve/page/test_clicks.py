"""The actions for clicks on the picture, as declared by an environment and served in its schema."""

from typing import Any

import pytest
from tests.serve.cameras import Camera
from tests.serve.running import running

from tropism import Session, ValidationError, make
from tropism.core.transforms import time_limit
from tropism.serve.session.json_form import JsonForm

COLUMNS = [[{"value": column} for column in range(7)]]


def clicks(env: Any) -> Any:
    with Session(env) as session:
        return JsonForm(session).annotated_schema()["action"].get("x-clicks")


def test_a_click_on_connect_four_takes_the_column_under_it():
    env, _ = make("ConnectFour-v0")
    assert clicks(env) == COLUMNS
    assert clicks(time_limit(env, 5)) == COLUMNS


def test_only_the_schema_for_pages_names_clicks():
    with running("ConnectFour-v0", "GridWorld-v0") as server, server.http() as caller:
        assert caller.get("/schema").json()["action"]["x-clicks"] == COLUMNS
        assert "x-clicks" not in caller.get("/openapi.json").text
        assert "x-clicks" not in caller.get("/envs/GridWorld-v0/schema").json()["action"]


def test_cells_may_have_no_action():
    assert clicks(Camera(((None, 0), (3, None)))) == [[None, {"value": 0}], [{"value": 3}, None]]


@pytest.mark.parametrize(
    ("rows", "expected"), [(((0, 4),), "0 to 3"), (((0, "up"),), "0 to 3"), (((0, 1), (2,)), "rows of equal length")]
)
def test_cells_that_are_not_actions_are_rejected(rows: Any, expected: str):
    with pytest.raises(ValidationError, match=expected) as raised:
        clicks(Camera(rows))
    assert raised.value.name == "language.clicks"
