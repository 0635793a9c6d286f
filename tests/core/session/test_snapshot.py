"""The bytes of a snapshot: committed ones stay readable, and a mismatch is named."""

import json

import pytest
from tests.core.lines import Line
from tests.fixtures.sessions import ACTIONS, FOLDER, STEPS, play, to_json

from tropism import Session, ValidationError, make, time_limit
from tropism.core.params import read_params, write_params
from tropism.core.session import snapshot


@pytest.mark.parametrize("id", ACTIONS)
def test_a_committed_snapshot_is_restored(id: str):
    data = (FOLDER / "snapshots" / f"{id}.snapshot").read_bytes()
    with Session.restore(data) as session, play(id, STEPS + 1) as twin:
        assert (session.seed, session.step_count) == (7, STEPS)
        assert to_json(session) == json.loads((FOLDER / "snapshots" / f"{id}.json").read_text())
        session.step(ACTIONS[id])
        assert (session.step_count, session.lifecycle) == (twin.step_count, twin.lifecycle)


def test_an_older_snapshot_is_refused():
    data = (FOLDER / "snapshots" / "CartPole-v1.snapshot").read_bytes()
    with pytest.raises(ValidationError, match=r"tropism1.*expected b'tropism2'; this one was made by an older Tropism"):
        Session.restore(b"tropism1" + data[8:])


def test_the_layout_has_paths_and_types_but_no_class_names():
    data = (FOLDER / "snapshots" / "PlumeNav-v0.snapshot").read_bytes()
    header, _ = snapshot.decode(data)
    assert header["engine"]["layouts"]["params"]["field.sigma"] == "float32[]"
    assert header["params"]["field.sigma"] == 20.0
    assert "Gaussian" not in json.dumps(header)


def test_a_snapshot_of_another_layout_names_the_first_leaf_that_differs():
    env, params = make("CartPole-v1")
    with Session(time_limit(env, 9), params) as session:
        session.reset(seed=0)
        with pytest.raises(ValidationError, match=r"in its episode'; expected 0\.state\.x float32\[\], as in"):
            Session.restore(session.snapshot(), env)


def test_params_are_read_by_name():
    params = Line().default_params()
    written = write_params(params)
    assert read_params(params, dict(reversed(written.items()))) == params
    assert read_params(params, {"stride": 3.0}).stride == 3.0
    with pytest.raises(ValidationError, match=r"params is 'speed'; expected a number of this environment: .*stride"):
        read_params(params, {"speed": 1.0})
