"""A step is applied only where its caller expects the episode to be."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.faults.journals import copy_journal, echo, flip_bit, killed_journal, last_commit_offset, play_echo, resumed
from tests.serve.drawer import drawer
from tests.serve.lab import STAY
from tests.serve.replies import assert_error, assert_refused
from tests.serve.requests import call_tool
from tests.serve.running import Running, running, talk

from tropism.client import Client
from tropism.errors import StepConflictError
from tropism.serve.http.messages import Trait
from tropism.serve.http.routes import ROUTES
from tropism.serve.session.live import OPERATIONS
from tropism.serve.storage.sqlite import SqliteJournal
from tropism.serve.storage.wal import HEADER
from tropism.serve.tools.tools import TOOLS

DRAWER = ("Drawer-v0", {"value": STAY})


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0", "CartPole-v1", own=drawer()) as server:
        yield server


@pytest.mark.parametrize(("id", "action"), [("Echo-v0", {"message": "a"}), ("CartPole-v1", {"value": 1}), DRAWER])
def test_every_reply_on_a_socket_has_the_step_count(server: Running, id: str, action: dict[str, Any]):
    with server.ws(id) as connection:
        talk(connection, "reset", {"seed": 1})
        for count in (1, 2):
            assert talk(connection, "step", action)["data"]["step_count"] == count
        snapshot = talk(connection, "snapshot")["data"]["snapshot_id"]
        file = {"path": "a", "data": "AAAA"}
        requests = {"state": {}, "snapshot": {}, "fork": {}, "history": {}, "restore": {"from": snapshot}}
        requests |= {"write_file": file, "files": {}, "read_file": {"path": "a"}} if id == DRAWER[0] else {}
        if id == DRAWER[0]:
            assert {*requests, "reset", "step"} == set(OPERATIONS)
        for kind, data in requests.items():
            assert talk(connection, kind, data)["data"]["step_count"] == 2, kind
        assert talk(connection, "reset", {"seed": 1})["data"]["step_count"] == 0


def test_every_reply_over_http_has_the_step_count(server: Running):
    id, action = DRAWER
    with server.http(id) as caller:
        caller.post("/reset", json={})
        for _ in range(2):
            caller.post("/step", json={"action": action})
        bodies = {"/restore": {"from": caller.post("/snapshot", json={}).json()["snapshot_id"]}}
        bodies |= {"/step": {"action": action}, "/reset": {}, "/snapshot": {}, "/fork": {}, "/close": {}}
        last = ("/restore", "/step", "/reset", "/close")
        routes = [route for route in ROUTES if route.traits & Trait.SESSION]
        routes.sort(key=lambda route: (last.index(route.path) if route.path in last else -1, route.method != "PUT"))
        for route in routes:
            path = route.path.replace("{path}", "a")
            content = b"x" if route.method == "PUT" else None
            reply = caller.request(route.method, path, content=content, json=bodies.get(path))
            found = reply.headers.get("x-step-count") or reply.json()["step_count"]
            assert int(found) == {"/step": 3, "/reset": 0, "/close": 0}.get(path, 2), path


def test_every_reply_of_a_tool_has_the_step_count(server: Running):
    with server.http() as caller:
        session = call_tool(caller, "open_session", environment="Echo-v0")
        counts, named = [session["step_count"]], {"session_id": session["session_id"]}
        counts.append(call_tool(caller, "begin_episode", **named)["step_count"])
        counts.append(call_tool(caller, "take_action", action={"message": "a"}, **named)["step_count"])
        others = ("get_state", "fork_session", "close_session")
        counts += [call_tool(caller, tool, **named)["step_count"] for tool in others]
        assert counts == [0, 0, 1, 1, 1, 1]
        assert len(counts) == len(TOOLS) - 1, "all but list_environments"


def test_a_step_for_another_position_is_refused(server: Running):
    with server.ws() as connection:
        talk(connection, "reset")
        assert echo(connection, after=0)["data"]["step_count"] == 1
        for after in (0, 2):
            assert assert_error(echo(connection, after=after), "STEP_CONFLICT")["step_count"] == 1
        assert echo(connection, after=1)["data"]["step_count"] == 2
    with server.http() as caller:
        caller.post("/reset", json={})
        refused = caller.post("/step", json={"action": {"message": "a"}, "after": 3})
        assert (refused.status_code, refused.json()["step_count"]) == (409, 0)


def test_a_step_of_another_episode_is_refused(server: Running):
    with server.ws() as connection:
        first = talk(connection, "reset")["data"]["episode_id"]
        second = talk(connection, "reset")["data"]["episode_id"]
        assert_error(echo(connection, after=0, episode_id=first), "STEP_CONFLICT")
        assert echo(connection, after=0, episode_id=second)["data"]["step_count"] == 1


def test_a_repeated_request_gets_its_reply_wherever_the_episode_is(server: Running):
    with server.ws() as connection:
        talk(connection, "reset")
        first = echo(connection, after=0, request_id="r")
        assert echo(connection, after=0, request_id="r") == first
        assert talk(connection, "state")["data"]["step_count"] == 1


def test_only_a_step_has_a_position(server: Running):
    with server.ws() as connection:
        talk(connection, "reset")
        assert_error(talk(connection, "state", after=0), "VALIDATION_ERROR")


def test_a_client_notices_that_another_one_stepped(server: Running):
    with Client(server.url) as client:
        client.reset(seed=1)
        client.step({"message": "a"})
        with server.ws(query=f"?session_id={client.session_id}") as other:
            echo(other)
        with pytest.raises(StepConflictError, match="at step 2, not 1") as refused:
            client.step({"message": "b"})
        assert refused.value.step_count == 2
        with pytest.raises(StepConflictError):
            client.step({"message": "b"})
        assert client.state().step_count == 2
        client.step({"message": "b"})


def test_a_reboot_under_process_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path, session = killed_journal(tmp_path, play_echo(8), boot_id="first")
    with caplog.at_level(logging.WARNING), running("Echo-v0", journal=SqliteJournal(path, boot_id="second")) as server:
        assert "commits may be lost" in caplog.text
        with server.ws(query=f"?session_id={session}") as connection:
            assert assert_error(echo(connection), "STEP_CONFLICT")["step_count"] == 8
            assert_error(echo(connection, after=10), "STEP_CONFLICT")
            assert echo(connection, after=8)["data"]["step_count"] == 9
            assert echo(connection)["data"]["step_count"] == 10


def test_a_session_stays_doubtful_until_its_position_is_confirmed(tmp_path: Path):
    path, session = killed_journal(tmp_path, play_echo(3), boot_id="first")
    with running("Echo-v0", journal=SqliteJournal(path, boot_id="second")):
        pass
    with (
        running("Echo-v0", journal=SqliteJournal(path, boot_id="second")) as server,
        server.ws(query=f"?session_id={session}") as connection,
    ):
        assert_error(echo(connection), "STEP_CONFLICT")
        assert talk(connection, "reset")["data"]["step_count"] == 0
        assert echo(connection)["data"]["step_count"] == 1


def test_doubt_does_not_end_by_a_fork_a_snapshot_or_an_upload(tmp_path: Path):
    def play(server: Running) -> tuple[str, str]:
        with server.ws("Drawer-v0") as connection:
            session = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
            snapshot = talk(connection, "snapshot")["data"]["snapshot_id"]
            for _ in range(3):
                talk(connection, "step", DRAWER[1])
            return session, snapshot

    path, (session, snapshot) = killed_journal(tmp_path, play, drawer(), boot_id="first")
    with (
        running(own=drawer(), journal=SqliteJournal(path, boot_id="second")) as server,
        server.http("Drawer-v0", headers={"X-Session-Id": session}) as caller,
    ):
        assert caller.get("/state").json()["step_count"] == 3
        for kind, data in (("snapshot", {}), ("fork", {}), ("fork", {"from": "now", "seed": 3})):
            assert assert_refused(caller.post(f"/{kind}", json=data), "STEP_CONFLICT")["step_count"] == 3
            assert_refused(caller.post(f"/{kind}", json=data | {"request_id": "r"}), "STEP_CONFLICT")
        assert assert_refused(caller.put("/files/a", content=b"x"), "STEP_CONFLICT")["step_count"] == 3
        for origin, count in ((snapshot, 0), ({"step": 2}, 2)):  # these name the position themselves
            assert caller.post("/fork", json={"from": origin}).json()["step_count"] == count
        assert caller.post("/step", json={"action": DRAWER[1], "after": 3}).json()["step_count"] == 4
        assert caller.put("/files/a", content=b"x").json()["step_count"] == 4
        for kind in ("snapshot", "fork"):
            assert caller.post(f"/{kind}", json={}).json()["step_count"] == 4


def test_a_tool_confirms_the_position(tmp_path: Path):
    path, session = killed_journal(tmp_path, play_echo(3), boot_id="first")
    with running("Echo-v0", journal=SqliteJournal(path, boot_id="second")) as server, server.http() as caller:
        step = {"session_id": session, "action": {"message": "a"}}
        refused = call_tool(caller, "take_action", **step)
        assert (refused["code"], refused["step_count"]) == ("STEP_CONFLICT", 3)
        assert call_tool(caller, "fork_session", session_id=session)["code"] == "STEP_CONFLICT"
        assert call_tool(caller, "take_action", after=2, **step)["code"] == "STEP_CONFLICT"
        assert call_tool(caller, "take_action", after=3, **step)["step_count"] == 4
        assert call_tool(caller, "take_action", **step)["step_count"] == 5
        assert call_tool(caller, "fork_session", session_id=session)["step_count"] == 5


def agent_rpc(caller: httpx.Client, agent_id: str, method: str, **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return caller.post(f"/agent/{agent_id}/mcp", json=body).json()["result"]


AGENTS = [("Echo-v0", "echo_message", {"message": "a"}), (DRAWER[0], "act", {"action": DRAWER[1]})]


@pytest.mark.parametrize(("id", "name", "arguments"), AGENTS)
def test_an_agent_confirms_the_position(tmp_path: Path, id: str, name: str, arguments: dict[str, Any]):
    def play(server: Running) -> dict[str, str]:
        with server.ws(id) as connection:
            begun = talk(connection, "reset", {"seed": 1})["data"]
            for _ in range(3):
                talk(connection, "step", arguments.get("action", arguments))
            return begun

    path, begun = killed_journal(tmp_path, play, drawer(), boot_id="first")
    agent = begun["agent_id"]
    journal = SqliteJournal(path, boot_id="second")
    with running("Echo-v0", own=drawer(), journal=journal) as server, server.http() as caller:
        caller.get(f"/envs/{id}/state", headers={"X-Session-Id": begun["session_id"]})  # its owner has resumed it

        def act(**fields: Any) -> dict[str, Any]:
            return agent_rpc(caller, agent, "tools/call", name=name, arguments=arguments | fields)

        def takes_after() -> bool:
            (listed,) = agent_rpc(caller, agent, "tools/list")["tools"]
            assert "after" not in listed["inputSchema"]["required"]
            return "after" in listed["inputSchema"]["properties"]

        assert "after: 3" in agent_rpc(caller, agent, "initialize")["instructions"]
        assert takes_after()
        refused = act()
        assert refused["isError"]
        assert "repeat it with after: 3" in refused["content"][0]["text"]
        assert act(after=5)["isError"]
        assert "VALIDATION_ERROR" in act(after=-1)["content"][0]["text"]
        assert act(after=3)["structuredContent"]["step_count"] == 4
        assert act()["structuredContent"]["step_count"] == 5
        assert not takes_after()
        assert "after:" not in agent_rpc(caller, agent, "initialize")["instructions"]


def test_a_request_of_an_agent_confirms_the_position(tmp_path: Path):
    def play(server: Running) -> dict[str, str]:
        with server.ws() as connection:
            begun = talk(connection, "reset")["data"]
            echo(connection)
            return begun

    path, begun = killed_journal(tmp_path, play, boot_id="first")
    with running("Echo-v0", journal=SqliteJournal(path, boot_id="second")) as server, server.http() as caller:
        caller.get("/state", headers={"X-Session-Id": begun["session_id"]})
        url, step = f"/agent/{begun['agent_id']}/step", {"action": {"message": "a"}}
        assert assert_refused(caller.post(url, json=step), "STEP_CONFLICT")["step_count"] == 1
        assert caller.post(url, json=step | {"after": 1}).json()["step_count"] == 2
        assert caller.post(url, json=step).json()["step_count"] == 3


@pytest.mark.parametrize(("durability", "boot"), [("power", "second"), ("process", "first")])
def test_without_lost_commits_a_step_needs_no_position(tmp_path: Path, durability: str, boot: str):
    path, session = killed_journal(tmp_path, play_echo(3), boot_id="first", durability=durability)
    with (
        running("Echo-v0", journal=SqliteJournal(path, boot_id=boot)) as server,
        server.ws(query=f"?session_id={session}") as connection,
    ):
        assert echo(connection)["data"]["step_count"] == 4


def test_a_reboot_after_a_shutdown_loses_nothing(tmp_path: Path):
    with running("Echo-v0", journal=SqliteJournal(tmp_path / "journal", boot_id="first")) as server:
        session = play_echo(3)(server)
    with (
        running("Echo-v0", journal=SqliteJournal(tmp_path / "journal", boot_id="second")) as server,
        server.ws(query=f"?session_id={session}") as connection,
    ):
        assert echo(connection)["data"]["step_count"] == 4


@pytest.mark.parametrize("place", ["log", "frame", "header"])
def test_damaged_logs_are_noticed(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture):
    """After a flipped bit, SQLite would discard later commits without a word, and so would the log of entries."""
    with running("Echo-v0", journal=SqliteJournal(tmp_path / "running")) as server:
        session = play_echo(8)(server)
        with server.ws(query=f"?session_id={session}") as connection:
            talk(connection, "snapshot")  # a commit in the write-ahead log
            echo(connection)
            echo(connection)
        path = copy_journal(tmp_path / "running", tmp_path / "killed")
    if place == "log":
        flip_bit(Path(f"{path}-log"), Path(f"{path}-log").stat().st_size - 10)
    else:
        wal = Path(f"{path}-wal")
        flip_bit(wal, HEADER.size - 1 if place == "header" else last_commit_offset(wal))
    with caplog.at_level(logging.ERROR), running("Echo-v0", journal=SqliteJournal(path)) as server:
        assert "commits were discarded" in caplog.text
        with server.ws(query=f"?session_id={session}") as connection:
            if place == "header":  # with all commits, the session is gone
                assert_error(resumed(connection), "SESSION_ERROR")
                return
            count = assert_error(echo(connection), "STEP_CONFLICT")["step_count"]
            assert count == (9 if place == "log" else 10)
            assert_error(echo(connection, after=11), "STEP_CONFLICT")
            assert echo(connection, after=count)["data"]["step_count"] == count + 1
