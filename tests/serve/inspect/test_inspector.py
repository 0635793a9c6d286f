"""Sessions seen by their views: their past and their pictures, forks from any step, and who may look."""

import base64
import io
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.serve.inspect.timelines import begun, picture_of
from tests.serve.replies import assert_refused
from tests.serve.requests import TOKENS, act, bearer
from tests.serve.running import Running, labs, running, talk

from tropism import Session, make
from tropism.serve.inspect import inspector, timeline
from tropism.serve.inspect.png import png
from tropism.serve.inspect.timeline import named_numbers


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("GridWorld-v0", "PlumeNav-v0", "ConnectFour-v0", "Echo-v0", own=labs()) as started:
        yield started


def test_a_png_is_the_picture_it_was_made_of():
    picture = np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8)
    assert (np.asarray(Image.open(io.BytesIO(png(picture)))) == picture).all()


def test_the_past_of_a_session_is_what_a_session_of_ones_own_would_have_seen(server: Running):
    actions = [number % 4 for number in range(100)]
    with server.http("PlumeNav-v0") as caller, Session(*make("PlumeNav-v0")) as session:
        view = begun(caller, actions, seed=7)
        rows = caller.get(f"/sessions/{view}/history").json()["rows"]
        assert list(rows[0]["numbers"]) == ["smell"]
        session.reset(seed=7)
        assert len(rows) == 101
        for row in rows:
            assert (row["step"], row["text"], row["spot"]) == (
                session.step_count,
                session.describe(),
                list(session.agent_spot() or ()),
            )
            if row["step"] % 33 == 0 or row["step"] == 100:
                seen = picture_of(caller.get(f"/sessions/{view}/picture?step={row['step']}"))
                assert (seen == session.render()).all()
            if row["step"] < 100:
                session.step(actions[row["step"]])


def test_a_history_goes_on_from_where_it_was_read_and_says_when_it_begins_anew(server: Running):
    with server.http("GridWorld-v0") as caller:
        view = begun(caller, [1, 2])
        first = caller.get(f"/sessions/{view}/history").json()
        snapshot = caller.post("/snapshot", json={}).json()["snapshot_id"]
        caller.post("/step", json=act(1))
        later = caller.get(f"/sessions/{view}/history?from=3").json()
        assert (later["take"], [row["step"] for row in later["rows"]]) == (first["take"], [3])
        assert caller.post("/restore", json={"from": snapshot}).json()["view"] == view
        caller.post("/step", json=act(2))
        restored = caller.get(f"/sessions/{view}/history").json()
        assert restored["take"] != first["take"]
        assert [row["action"] for row in restored["rows"]] == [None, {"value": 1}, {"value": 2}, {"value": 2}]
        caller.post("/reset", json={"seed": 1})
        assert caller.get(f"/sessions/{view}/history").json()["step_count"] == 0


def test_a_picture_is_of_the_current_episode_though_nobody_asked_for_its_history(server: Running):
    with server.http("ConnectFour-v0") as caller, Session(*make("ConnectFour-v0")) as session:
        view = begun(caller, [3], seed=1)
        caller.get(f"/sessions/{view}/picture?step=1")
        caller.post("/reset", json={"seed": 4})
        caller.post("/step", json=act(0))
        session.reset(seed=4)
        session.step(0)
        assert (picture_of(caller.get(f"/sessions/{view}/picture?step=1")) == session.render()).all()


def test_a_long_history_is_told_in_parts_and_has_an_end(server: Running, monkeypatch: pytest.MonkeyPatch):
    with server.http("GridWorld-v0") as caller:
        view = begun(caller, [1, 2, 1, 2, 0])
        whole = caller.get(f"/sessions/{view}/history").json()["rows"]
        monkeypatch.setattr(inspector, "MAX_ROW_BYTES", 500)
        rows: list[Any] = []
        while len(rows) < 6:
            told = caller.get(f"/sessions/{view}/history?from={len(rows)}")
            assert 1 <= len(told.json()["rows"]) < 6
            rows += told.json()["rows"]
        assert rows == whole
        assert caller.get(f"/sessions/{view}/history?from=6").json()["rows"] == []
        monkeypatch.setattr(timeline, "MAX_SHOWN_BYTES", 500)
        other = caller.post(f"/sessions/{view}/fork", json={"step": 5}).json()["view"]
        told = caller.get(f"/sessions/{other}/history").json()
        assert 0 < told["step_count"] < 5
        assert caller.get(f"/sessions/{other}/history?from={told['step_count'] + 1}").json()["rows"] == []


def test_the_parts_of_an_observation_have_names_of_their_own():
    parts = {"left": {"x": 1.0, "seen": np.zeros(2)}, "right": {"x": 2.0}, "clock": 3}
    assert named_numbers(parts, ()) == {"left.x": 1, "left.seen[0]": 0, "left.seen[1]": 0, "right.x": 2, "clock": 3}


def test_a_fork_from_any_step_goes_on_from_there_and_the_other_never_knows(server: Running):
    with server.http("ConnectFour-v0") as caller, server.http("ConnectFour-v0") as other:
        view = begun(caller, [3, 3, 2], seed=5)
        whole = caller.get(f"/sessions/{view}/history").json()["rows"]
        for step in range(4):
            told = other.post(f"/sessions/{view}/fork", json={"step": step}).json()
            named = {"X-Session-Id": told["session_id"]}
            assert told["step_count"] == step
            rows = other.get(f"/sessions/{told['view']}/history").json()["rows"]
            assert rows == whole[: step + 1]
            if step < 3:  # the same action has the same outcome: the fork draws what the other drew
                other.post("/step", json=act([3, 3, 2][step]), headers=named)
                assert other.get(f"/sessions/{told['view']}/history?from={step + 1}").json()["rows"] == [
                    whole[step + 1]
                ]
            other.post("/close", headers=named)
        assert caller.get("/state").json()["step_count"] == 3
        assert caller.get(f"/sessions/{view}/history").json()["rows"] == whole


def test_a_fork_with_a_seed_is_replayed_as_it_went(server: Running):
    with server.http("ConnectFour-v0") as caller:
        view = begun(caller, [3, 3], seed=5)
        told = caller.post(f"/sessions/{view}/fork", json={"step": 1, "seed": 99}).json()
        named = {"X-Session-Id": told["session_id"]}
        for action in (0, 1):
            text = caller.post("/step", json=act(action), headers=named).json()["observation"]["text"]
        rows = caller.get(f"/sessions/{told['view']}/history").json()["rows"]
        assert [row["step"] for row in rows] == [0, 1, 2, 3]
        assert rows[-1]["text"] == text
        again = caller.post(f"/sessions/{told['view']}/fork", json={"step": 3}).json()
        assert caller.get(f"/sessions/{again['view']}/history").json()["rows"] == rows


def test_a_fork_that_there_is_no_room_for_leaves_nothing_behind(tmp_path: Path):
    with running("GridWorld-v0", record=tmp_path, max_sessions_per_token=2) as server, server.http() as caller:
        view = begun(caller, [1])
        for body in ({"step": 9}, {"step": 1, "seed": "none"}):
            assert caller.post(f"/sessions/{view}/fork", json=body).status_code == 422
            assert len(server.app.sessions) == 1
        assert caller.post(f"/sessions/{view}/fork", json={"step": 1}).status_code == 200
        for path, body in ((f"/sessions/{view}/fork", {"step": 1}), ("/fork", {"from": "now"})):
            assert_refused(caller.post(path, json=body), "QUOTA_REACHED")
        assert caller.get("/recordings").json()["count"] == len(server.app.sessions) == 2


def test_a_view_allows_to_look_and_not_to_step(server: Running):
    with server.http("GridWorld-v0") as caller, server.http("GridWorld-v0") as stranger:
        reply = caller.post("/reset", json={"seed": 1}).json()
        view, id = reply["view"], reply["session_id"]
        assert base64.urlsafe_b64decode(view) not in id.encode()
        assert id not in stranger.get("/sessions").text
        assert id not in stranger.get(f"/sessions/{view}/history").text
        named = {"X-Session-Id": view}
        for path in ("/reset", "/step", "/snapshot", "/fork", "/restore", "/close"):
            assert_refused(stranger.post(path, json={}, headers=named), "SESSION_ERROR")
        with server.ws("GridWorld-v0", query=f"?session_id={view}") as connection:
            assert "SESSION_ERROR" in str(connection.recv(10))
        for path in (f"/sessions/{view}/step", f"/sessions/{view}/close", f"/sessions/{id}/history"):
            assert stranger.post(path, json=act(1)).status_code in (404, 405)
        assert caller.get("/state").json()["step_count"] == 0


def test_a_token_sees_only_its_own_sessions():
    with running("GridWorld-v0", tokens=TOKENS) as server:
        mine, theirs = (server.http(headers=bearer(token)) for token in TOKENS)
        with mine, theirs, server.http() as nobody:
            view = begun(mine, [1])
            mine.get(f"/sessions/{view}/history")
            assert [row["view"] for row in mine.get("/sessions").json()["sessions"]] == [view]
            assert theirs.get("/sessions").json() == {"count": 0, "sessions": []}
            for path in (f"/sessions/{view}/history", f"/sessions/{view}/picture?step=0"):
                assert mine.get(path).status_code == 200
                assert_refused(theirs.get(path), "SESSION_ERROR")
                assert_refused(nobody.get(path), "UNAUTHORIZED")
            assert_refused(theirs.post(f"/sessions/{view}/fork", json={"step": 0}), "SESSION_ERROR")
            assert_refused(nobody.get("/picture"), "UNAUTHORIZED")
            assert nobody.get("/").status_code == nobody.get("/page/app.js").status_code == 200


@pytest.mark.parametrize("step", ["2", "-1", str(10**17), str(10**30), "one", "1.5", ""])
def test_a_step_that_was_not_taken_is_refused(server: Running, step: str):
    with server.http("GridWorld-v0") as caller:
        view = begun(caller, [1])
        assert_refused(caller.get(f"/sessions/{view}/picture?step={step}"), "VALIDATION_ERROR")
        body = f'{{"step": {step or "null"}}}' if step != "one" else '{"step": "one"}'
        assert_refused(caller.post(f"/sessions/{view}/fork", content=body), "VALIDATION_ERROR")
        beyond = caller.get(f"/sessions/{view}/history?from={step}")
        assert beyond.status_code == (200 if step in ("2", str(10**17)) else 422)
        assert beyond.status_code == 422 or beyond.json()["rows"] == []


def test_what_cannot_be_seen_is_said(server: Running):
    with server.http("Unwritable-v0") as unwritable, server.http("Echo-v0") as echo:
        view = unwritable.post("/reset", json={}).json()["view"]
        assert_refused(unwritable.get(f"/sessions/{view}/history"), "STATE_ERROR")
        assert_refused(unwritable.get("/sessions/nobody/history"), "SESSION_ERROR")
        assert_refused(unwritable.get("/sessions/%C3%BC/history"), "SESSION_ERROR")
        view = echo.post("/reset", json={}).json()["view"]
        blank = echo.get(f"/sessions/{view}/picture?step=0")
        assert (blank.status_code, blank.content) == (204, b"")
        assert not {"content-type", "content-length", "transfer-encoding"} & {*blank.headers}
        echo.post("/close")
        assert_refused(echo.get(f"/sessions/{view}/history"), "SESSION_ERROR")


def test_the_list_of_sessions_has_an_end():
    with running("GridWorld-v0") as many:
        with many.http() as caller:
            view = caller.post("/reset", json={}).json()["view"]
            for _ in range(230):
                view = caller.post(f"/sessions/{view}/fork", json={"step": 0}).json()["view"]
            told = caller.get("/sessions").json()
        assert (told["count"], len(told["sessions"]), told["sessions"][0]["view"]) == (231, 200, view)


def test_the_page_is_served_with_its_rules_and_nothing_else_is(server: Running):
    with server.http() as caller:
        home = caller.get("/")
        assert home.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in home.headers["content-security-policy"]
        assert caller.get("/page/app.js").headers["content-type"].startswith("text/javascript")
        for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/", "/page/none.js", "/envs/Echo-v0/page/app.js"):
            assert_refused(caller.get(path), "NOT_FOUND")
        assert_refused(caller.post("/", json={}), "METHOD_NOT_ALLOWED")
        assert_refused(caller.get("/", headers={"Host": "evil.example"}), "FORBIDDEN")


@pytest.mark.parametrize("path", ["/", "/docs", "/page/app.js", "/health", "/picture", "/nowhere", "/mcp"])
def test_no_reply_is_framed_or_taken_for_something_else(server: Running, path: str):
    with server.http() as caller:
        for headers in ({}, {"Host": "evil.example"}):
            told = caller.get(path, headers=headers).headers
            assert told["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in told["content-security-policy"]
        own = caller.get(path).headers["content-security-policy"]
        assert ("default-src 'self'" in own) == (path in ("/", "/docs", "/page/app.js"))


def test_an_environment_has_a_picture_or_words(server: Running):
    with server.http("GridWorld-v0") as grid, server.http("Echo-v0") as echo:
        assert picture_of(grid.get("/picture")).shape == (400, 400, 3)
        assert "Nothing to hear yet" in echo.get("/picture").text


def test_a_socket_tells_the_view_too(server: Running):
    with server.ws("GridWorld-v0") as connection, server.http() as caller:
        view = talk(connection, "reset", {"seed": 1})["data"]["view"]
        talk(connection, "step", {"value": 1})
        assert caller.get(f"/sessions/{view}/history").json()["step_count"] == 1


def test_two_processes_do_not_give_two_reels_the_same_take():
    """A page keeps what it has fetched of a take, also across a restart of the server."""
    first, second = (next(runpy.run_path(timeline.__file__)["versions"]) for _ in range(2))
    assert first != second
