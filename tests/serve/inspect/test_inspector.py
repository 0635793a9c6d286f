"""Inspected sessions: histories, pictures, forks at any step, and access."""

import base64
import io
import runpy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.serve.inspect.timelines import picture_of, start_session
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


def test_png_round_trip():
    picture = np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8)
    assert (np.asarray(Image.open(io.BytesIO(png(picture)))) == picture).all()


def test_the_history_equals_that_of_a_local_session(server: Running):
    actions = [number % 4 for number in range(100)]
    with server.http("PlumeNav-v0") as caller, Session(*make("PlumeNav-v0")) as session:
        view = start_session(caller, actions, seed=7)
        rows = caller.get(f"/sessions/{view}/history").json()["rows"]
        assert list(rows[0]["numbers"]) == ["smell"]
        session.reset(seed=7)
        assert len(rows) == 101
        for row in rows:
            assert (row["step"], row["text"], row["spot"]) == (
                session.step_count,
                session.describe(),
                list(session.agent_position_in_image() or ()),
            )
            if row["step"] % 33 == 0 or row["step"] == 100:
                seen = picture_of(caller.get(f"/sessions/{view}/picture?step={row['step']}"))
                assert (seen == session.render()).all()
            if row["step"] < 100:
                session.step(actions[row["step"]])


def test_a_history_continues_from_a_row_and_changes_version_on_reset(server: Running):
    with server.http("GridWorld-v0") as caller:
        view = start_session(caller, [1, 2])
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


def test_a_picture_is_of_the_current_episode_without_a_history_request(server: Running):
    with server.http("ConnectFour-v0") as caller, Session(*make("ConnectFour-v0")) as session:
        view = start_session(caller, [3], seed=1)
        caller.get(f"/sessions/{view}/picture?step=1")
        caller.post("/reset", json={"seed": 4})
        caller.post("/step", json=act(0))
        session.reset(seed=4)
        session.step(0)
        assert (picture_of(caller.get(f"/sessions/{view}/picture?step=1")) == session.render()).all()


def test_a_long_history_is_paged_and_limited(server: Running, monkeypatch: pytest.MonkeyPatch):
    with server.http("GridWorld-v0") as caller:
        view = start_session(caller, [1, 2, 1, 2, 0])
        whole = caller.get(f"/sessions/{view}/history").json()["rows"]
        monkeypatch.setattr(inspector, "MAX_ROW_BYTES", 500)
        rows: list[Any] = []
        while len(rows) < 6:
            received = caller.get(f"/sessions/{view}/history?from={len(rows)}")
            assert 1 <= len(received.json()["rows"]) < 6
            rows += received.json()["rows"]
        assert rows == whole
        assert caller.get(f"/sessions/{view}/history?from=6").json()["rows"] == []
        monkeypatch.setattr(timeline, "MAX_SHOWN_BYTES", 500)
        other = caller.post(f"/sessions/{view}/fork", json={"step": 5}).json()["view"]
        received = caller.get(f"/sessions/{other}/history").json()
        assert 0 < received["step_count"] < 5
        assert caller.get(f"/sessions/{other}/history?from={received['step_count'] + 1}").json()["rows"] == []


def test_the_parts_of_an_observation_have_unique_names():
    parts = {"left": {"x": 1.0, "seen": np.zeros(2)}, "right": {"x": 2.0}, "clock": 3}
    assert named_numbers(parts, ()) == {"left.x": 1, "left.seen[0]": 0, "left.seen[1]": 0, "right.x": 2, "clock": 3}


def test_a_fork_from_any_step_does_not_affect_its_parent(server: Running):
    with server.http("ConnectFour-v0") as caller, server.http("ConnectFour-v0") as other:
        view = start_session(caller, [3, 3, 2], seed=5)
        whole = caller.get(f"/sessions/{view}/history").json()["rows"]
        for step in range(4):
            received = other.post(f"/sessions/{view}/fork", json={"step": step}).json()
            named = {"X-Session-Id": received["session_id"]}
            assert received["step_count"] == step
            rows = other.get(f"/sessions/{received['view']}/history").json()["rows"]
            assert rows == whole[: step + 1]
            if step < 3:  # the same action has the same outcome in the fork
                other.post("/step", json=act([3, 3, 2][step]), headers=named)
                assert other.get(f"/sessions/{received['view']}/history?from={step + 1}").json()["rows"] == [
                    whole[step + 1]
                ]
            other.post("/close", headers=named)
        assert caller.get("/state").json()["step_count"] == 3
        assert caller.get(f"/sessions/{view}/history").json()["rows"] == whole


def test_a_fork_with_a_seed_can_be_replayed(server: Running):
    with server.http("ConnectFour-v0") as caller:
        view = start_session(caller, [3, 3], seed=5)
        received = caller.post(f"/sessions/{view}/fork", json={"step": 1, "seed": 99}).json()
        named = {"X-Session-Id": received["session_id"]}
        for action in (0, 1):
            text = caller.post("/step", json=act(action), headers=named).json()["observation"]["text"]
        rows = caller.get(f"/sessions/{received['view']}/history").json()["rows"]
        assert [row["step"] for row in rows] == [0, 1, 2, 3]
        assert rows[-1]["text"] == text
        again = caller.post(f"/sessions/{received['view']}/fork", json={"step": 3}).json()
        assert caller.get(f"/sessions/{again['view']}/history").json()["rows"] == rows


def test_a_fork_beyond_the_limit_opens_no_session(tmp_path: Path):
    with running("GridWorld-v0", record=tmp_path, max_sessions_per_token=2) as server, server.http() as caller:
        view = start_session(caller, [1])
        for body in ({"step": 9}, {"step": 1, "seed": "none"}):
            assert caller.post(f"/sessions/{view}/fork", json=body).status_code == 422
            assert len(server.app.sessions) == 1
        assert caller.post(f"/sessions/{view}/fork", json={"step": 1}).status_code == 200
        assert len(server.app.sessions) == 2
        with ExitStack() as connected:  # sessions that are connected are not evicted for another
            for id in list(server.app.sessions._live):  # pyright: ignore
                connected.enter_context(server.ws("GridWorld-v0", query=f"?session_id={id}"))
            for path, body in ((f"/sessions/{view}/fork", {"step": 1}), ("/fork", {"from": "now"})):
                assert_refused(caller.post(path, json=body), "QUOTA_REACHED")
        assert caller.get("/recordings").json()["count"] == len(server.app.sessions) == 2


def test_a_watch_id_does_not_permit_stepping(server: Running):
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
            view = start_session(mine, [1])
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
def test_a_step_outside_the_episode_is_an_error(server: Running, step: str):
    with server.http("GridWorld-v0") as caller:
        view = start_session(caller, [1])
        assert_refused(caller.get(f"/sessions/{view}/picture?step={step}"), "VALIDATION_ERROR")
        body = f'{{"step": {step or "null"}}}' if step != "one" else '{"step": "one"}'
        assert_refused(caller.post(f"/sessions/{view}/fork", content=body), "VALIDATION_ERROR")
        beyond = caller.get(f"/sessions/{view}/history?from={step}")
        assert beyond.status_code == (200 if step in ("2", str(10**17)) else 422)
        assert beyond.status_code == 422 or beyond.json()["rows"] == []


def test_sessions_that_cannot_be_inspected_are_errors(server: Running):
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


def test_the_list_of_sessions_is_limited():
    with running("GridWorld-v0") as many:
        with many.http() as caller:
            view = caller.post("/reset", json={}).json()["view"]
            for _ in range(230):
                view = caller.post(f"/sessions/{view}/fork", json={"step": 0}).json()["view"]
            received = caller.get("/sessions").json()
        assert (received["count"], len(received["sessions"]), received["sessions"][0]["view"]) == (231, 200, view)


def test_the_page_is_served_with_its_content_security_policy(server: Running):
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
def test_every_reply_has_security_headers(server: Running, path: str):
    with server.http() as caller:
        for headers in ({}, {"Host": "evil.example"}):
            received = caller.get(path, headers=headers).headers
            assert received["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in received["content-security-policy"]
        own = caller.get(path).headers["content-security-policy"]
        assert ("default-src 'self'" in own) == (path in ("/", "/docs", "/page/app.js"))


def test_the_thumbnail_is_a_picture_or_text(server: Running):
    with server.http("GridWorld-v0") as grid, server.http("Echo-v0") as echo:
        assert picture_of(grid.get("/picture")).shape == (400, 400, 3)
        assert "Nothing to hear yet" in echo.get("/picture").text


def test_a_socket_reply_has_the_watch_id(server: Running):
    with server.ws("GridWorld-v0") as connection, server.http() as caller:
        view = talk(connection, "reset", {"seed": 1})["data"]["view"]
        talk(connection, "step", {"value": 1})
        assert caller.get(f"/sessions/{view}/history").json()["step_count"] == 1


def test_versions_differ_between_processes():
    """A page caches pictures by version, also across a restart of the server."""
    first, second = (next(runpy.run_path(timeline.__file__)["versions"]) for _ in range(2))
    assert first != second
