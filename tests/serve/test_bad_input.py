"""Bad input over a real socket: an error reply, and the session is unaffected."""

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import msgspec
import pytest
from tests.serve.replies import assert_error, assert_refused, talk_close
from tests.serve.running import Running, labs, running, talk
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

MIB = 2**20
HEADER_TIMEOUT, BODY_TIMEOUT = 0.6, 0.6  # seconds
DEEP = "[" * 10_000 + "]" * 10_000
STEP = {"action": {"value": 1}}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("CartPole-v1", own=labs(), header_timeout=HEADER_TIMEOUT, body_timeout=BODY_TIMEOUT) as started:
        yield started


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    """A caller in an episode, after one step; the test must leave the episode as it is."""
    with server.http() as bystander, server.http() as caller:
        for each in (bystander, caller):
            each.post("/reset", json={"seed": 1}).raise_for_status()
            each.post("/step", json=STEP).raise_for_status()
        yield caller
        for each in (bystander, caller):
            assert each.get("/state").json()["step_count"] == 1
            assert each.post("/step", json=STEP).status_code == 200


@pytest.fixture
def ws(server: Running) -> Iterator[ClientConnection]:
    """The same on sockets."""
    with server.ws() as bystander, server.ws() as caller:
        for each in (bystander, caller):
            talk(each, "reset", {"seed": 1})
            talk(each, "step", {"value": 1})
        yield caller
        for each in (bystander, caller):
            assert talk(each, "state")["data"]["step_count"] == 1
            assert talk(each, "step", {"value": 1})["type"] == "observation"


BODIES = {
    "malformed": (b'{"action": {', "INVALID_JSON"),
    "array": (b'[{"value": 1}]', "VALIDATION_ERROR"),
    "null": (b"null", "VALIDATION_ERROR"),
    "text": (b'"value"', "VALIDATION_ERROR"),
    "empty": (b"", "VALIDATION_ERROR"),
    "garbage": (bytes(range(256)) * 4, "INVALID_JSON"),
    "not UTF-8": (b'{"action": {"text": "\xff\xfe"}}', "INVALID_JSON"),
    "unknown field": (b'{"action": {"value": 1}, "speed": 2}', "VALIDATION_ERROR"),
    "unknown field of the action": (b'{"action": {"value": 1, "speed": 2}}', "VALIDATION_ERROR"),
    "missing field": (b'{"timeout_s": 1}', "VALIDATION_ERROR"),
    "empty action": (b'{"action": {}}', "VALIDATION_ERROR"),
    "bare action": (b'{"action": 1}', "VALIDATION_ERROR"),
    "string for a number": (b'{"action": {"value": "x"}}', "VALIDATION_ERROR"),
    "float for a whole number": (b'{"action": {"value": 1.0}}', "VALIDATION_ERROR"),
    "bool for a number": (b'{"action": {"value": true}}', "VALIDATION_ERROR"),
    "null for a number": (b'{"action": {"value": null}}', "VALIDATION_ERROR"),
    "out of range": (b'{"action": {"value": 2}}', "VALIDATION_ERROR"),
    "far out of range": (b'{"action": {"value": %d}}' % 10**300, "VALIDATION_ERROR"),
    "more digits than anybody reads": (b'{"action": {"value": %s}}' % (b"9" * 5000), "VALIDATION_ERROR"),
    "NaN": (b'{"action": {"value": NaN}}', "INVALID_JSON"),
    "infinite": (b'{"action": {"value": 1e999}}', "VALIDATION_ERROR"),
    "deep": (b'{"action": {"value": %s}}' % DEEP.encode(), "INVALID_JSON"),
    "deep and not closed": (b"[" * 100_000, "INVALID_JSON"),
    "a string that never ends": (b'{"a":' + b"[" * 70 + b'"' + b'\\"' * 400_000, "INVALID_JSON"),
    "number as words": (b'{"action": {"text": 1}}', "VALIDATION_ERROR"),
    "timeout of nothing": (b'{"action": {"value": 1}, "timeout_s": 0}', "VALIDATION_ERROR"),
    "negative timeout": (b'{"action": {"value": 1}, "timeout_s": -1}', "VALIDATION_ERROR"),
    "request id that is no string": (b'{"action": {"value": 1}, "request_id": 7}', "VALIDATION_ERROR"),
    "long request id": (b'{"action": {"value": 1}, "request_id": "%s"}' % (b"x" * 256), "VALIDATION_ERROR"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_an_error(http: httpx.Client, name: str):
    body, code = BODIES[name]
    start = time.monotonic()
    assert_refused(http.post("/step", content=body), code)
    assert time.monotonic() - start < 2


RESETS = {
    "negative seed": {"seed": -1},
    "float seed": {"seed": 1.5},
    "bool seed": {"seed": True},
    "text seed": {"seed": "1"},
    "unknown option": {"options": {"colour": "red"}},
    "unknown param": {"options": {"params": {"colour": 1}}},
    "param that is no number": {"options": {"params": {"gravity": "much"}}},
    "options that are no object": {"options": [1]},
    "episode id that is no string": {"episode_id": 4},
    "empty episode id": {"episode_id": ""},
    "long episode id": {"episode_id": "x" * 256},
    "unknown field": {"colour": "red"},
    "an option given twice": {"params": {"gravity": 9.0}, "options": {"params": {"gravity": 10.0}}},
}


@pytest.mark.parametrize("name", RESETS)
def test_a_bad_reset_does_not_change_the_episode(http: httpx.Client, ws: ClientConnection, name: str):
    assert_refused(http.post("/reset", json=RESETS[name]), "VALIDATION_ERROR")
    assert_error(talk(ws, "reset", RESETS[name]), "VALIDATION_ERROR")


def test_an_unknown_field_of_a_reset_is_an_unknown_option(http: httpx.Client, ws: ClientConnection):
    inside, beside = ({"options": {"colour": 1}}, {"colour": 1})
    received = [assert_refused(http.post("/reset", json=each), "VALIDATION_ERROR") for each in (inside, beside)]
    received += [assert_error(talk(ws, "reset", each), "VALIDATION_ERROR") for each in (inside, beside)]
    assert {each["message"] for each in received} == {received[0]["message"]}
    assert "options is 'colour'; expected a known option" in received[0]["message"]


def test_a_failed_first_reset_opens_no_session(server: Running):
    before = len(server.app.sessions)
    with server.http() as caller, server.ws() as connection:
        assert_refused(caller.post("/reset", json={"seed": -1}), "VALIDATION_ERROR")
        assert_error(talk(connection, "reset", {"seed": -1}), "VALIDATION_ERROR")
        assert_error(talk(connection, "step", {"value": 1}), "STATE_ERROR")
        assert talk(connection, "reset", {"seed": 1})["type"] == "observation"
        talk_close(connection)
    assert len(server.app.sessions) == before


def test_the_error_names_the_field(http: httpx.Client):
    assert (
        "timeout_s" in assert_refused(http.post("/step", json=STEP | {"timeout_s": "x"}), "VALIDATION_ERROR")["message"]
    )
    assert "speed" in assert_refused(http.post("/step", json=STEP | {"speed": 1}), "VALIDATION_ERROR")["message"]
    assert "action" in assert_refused(http.post("/step", json={}), "VALIDATION_ERROR")["message"]


FRAMES = {
    "malformed": ('{"type": "step"', "INVALID_JSON"),
    "array": ('[{"type": "step"}]', "VALIDATION_ERROR"),
    "number": ("3", "VALIDATION_ERROR"),
    "empty": ("", "INVALID_JSON"),
    "unknown type": ('{"type": "explode"}', "UNKNOWN_TYPE"),
    "no type": ('{"data": {"value": 1}}', "VALIDATION_ERROR"),
    "type that is no string": ('{"type": 3}', "VALIDATION_ERROR"),
    "unknown field": ('{"type": "step", "data": {"value": 1}, "colour": 1}', "VALIDATION_ERROR"),
    "no data": ('{"type": "step"}', "VALIDATION_ERROR"),
    "data that is no object": ('{"type": "step", "data": [1]}', "VALIDATION_ERROR"),
    "wrong type": ('{"type": "step", "data": {"value": "x"}}', "VALIDATION_ERROR"),
    "out of range": ('{"type": "step", "data": {"value": 7}}', "VALIDATION_ERROR"),
    "NaN": ('{"type": "step", "data": {"value": NaN}}', "INVALID_JSON"),
    "deep": ('{"type": "step", "data": {"value": ' + DEEP + "}}", "INVALID_JSON"),
    "request id that is no string": ('{"type": "step", "data": {"value": 1}, "request_id": 7}', "VALIDATION_ERROR"),
    "data of state": ('{"type": "state", "data": {"colour": 1}}', "VALIDATION_ERROR"),
    "snapshot nobody made": ('{"type": "restore", "data": {"from": "x"}}', "VALIDATION_ERROR"),
    "restore of nothing": ('{"type": "restore"}', "VALIDATION_ERROR"),
    "fork of nothing": ('{"type": "fork", "data": {"from": "x"}}', "VALIDATION_ERROR"),
    "fork of a step not taken": ('{"type": "fork", "data": {"from": {"step": 9}}}', "VALIDATION_ERROR"),
    "fork of a step before all": ('{"type": "fork", "data": {"from": {"step": -1}}}', "VALIDATION_ERROR"),
    "fork of half a step": ('{"type": "fork", "data": {"from": {"step": 0.5}}}', "VALIDATION_ERROR"),
    "fork of a step and more": ('{"type": "fork", "data": {"from": {"step": 0, "x": 1}}}', "VALIDATION_ERROR"),
    "fork of a number": ('{"type": "fork", "data": {"from": 1}}', "VALIDATION_ERROR"),
    "fork with a bad seed": ('{"type": "fork", "data": {"from": {"step": 0}, "seed": -1}}', "VALIDATION_ERROR"),
    "negative history": ('{"type": "history", "data": {"from": -1}}', "VALIDATION_ERROR"),
    "step of no batch": ('{"type": "step_batch", "data": {"actions": [1]}}', "STATE_ERROR"),
    "batch of none": ('{"type": "open", "data": {"count": 0}}', "VALIDATION_ERROR"),
    "batch of too many": ('{"type": "open", "data": {"count": 100000000}}', "VALIDATION_ERROR"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_bad_frame_gets_an_error_frame(ws: ClientConnection, name: str):
    text, code = FRAMES[name]
    ws.send(text)
    assert_error(json.loads(ws.recv(10)), code)


BINARIES = {
    "garbage": (bytes(range(256)), "INVALID_JSON"),
    "JSON in a binary frame": (b'{"type": "state"}', "INVALID_JSON"),
    "deep": (b"\x91" * 100_000 + b"\xc0", "INVALID_JSON"),
    "array": (msgspec.msgpack.encode([1, 2]), "VALIDATION_ERROR"),
    "not for batches": (msgspec.msgpack.encode({"type": "step", "data": {"value": 1}}), "UNKNOWN_TYPE"),
    "dtype of objects": (
        msgspec.msgpack.encode(
            {"type": "step_batch", "data": {"actions": {"dtype": "|O", "shape": [1], "data": b"12345678"}}}
        ),
        "STATE_ERROR",
    ),
}


@pytest.mark.parametrize("name", BINARIES)
def test_a_bad_binary_frame_gets_an_error_frame(ws: ClientConnection, name: str):
    raw, code = BINARIES[name]
    ws.send(raw)
    reply = ws.recv(10)
    assert isinstance(reply, str)
    assert_error(json.loads(reply), code)


def test_an_error_frame_has_the_id_of_its_request(ws: ClientConnection):
    assert talk(ws, "step", {"value": 9}, id="seven")["id"] == "seven"
    assert talk(ws, "explode", id=7)["id"] == 7
    assert "id" not in talk(ws, "explode")


def test_a_body_with_a_large_content_length_is_not_read(http: httpx.Client):
    received = assert_refused(http.post("/step", content=b"x" * (50 * MIB)), "TOO_LARGE")
    assert str(MIB) in received["message"]


def test_a_large_body_without_a_length_is_cut_off(http: httpx.Client):
    def chunks() -> Iterator[bytes]:
        for _ in range(50):
            yield b"x" * MIB

    try:
        assert_refused(http.post("/step", content=chunks()), "TOO_LARGE")
    except (httpx.WriteError, httpx.RemoteProtocolError):
        pytest.fail("the server hung up instead of answering")


def test_a_large_frame_closes_the_socket_but_not_the_session(server: Running):
    with server.ws() as connection:
        id = talk(connection, "reset", {"seed": 1})["data"]["session_id"]
        talk(connection, "step", {"value": 1})
        with suppress(ConnectionClosed):
            connection.send("x" * (50 * MIB))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    with server.ws(query=f"?session_id={id}") as connection:
        assert talk(connection, "state")["data"]["step_count"] == 1
        assert talk(connection, "step", {"value": 1})["type"] == "observation"


def test_a_step_before_the_reset_is_a_conflict(server: Running):
    with server.http() as caller, server.ws() as connection:
        received = assert_refused(caller.post("/step", json=STEP), "STATE_ERROR")
        assert "X-Session-Id" in received["message"]
        for path in ("/state", "/history"):
            assert_refused(caller.get(path), "STATE_ERROR")
        for path in ("/snapshot", "/fork", "/restore", "/close"):
            assert_refused(caller.post(path, json={}), "STATE_ERROR")
        for kind in ("step", "snapshot", "fork", "restore", "history"):
            assert_error(talk(connection, kind, {}), "STATE_ERROR")
        assert talk(connection, "state")["data"] == {"episode_id": None, "step_count": 0}


def test_a_step_after_the_end_is_a_conflict_until_the_next_reset(server: Running):
    with server.http("Lab-v0") as caller, server.ws("Lab-v0") as connection:
        caller.post("/reset", json={"seed": 1})
        assert caller.post("/step", json={"action": {"value": 3}}).json()["done"]
        assert_refused(caller.post("/step", json=STEP), "STATE_ERROR")
        assert caller.post("/reset", json={}).json()["observation"]["value"][1] == 0
        talk(connection, "reset", {"seed": 1})
        assert talk(connection, "step", {"value": 3})["data"]["terminated"]
        assert_error(talk(connection, "step", {"value": 0}), "STATE_ERROR")
        assert talk(connection, "reset")["data"]["observation"]["value"][1] == 0


def test_an_unknown_session_is_not_found(server: Running, http: httpx.Client):
    unknown = {"X-Session-Id": "AAAAAAAAAAAAAAAAAAAAAA"}
    for path in ("/reset", "/step", "/snapshot", "/close"):
        assert_refused(http.post(path, json={}, headers=unknown), "SESSION_ERROR")
    assert_refused(http.get("/state", headers=unknown), "SESSION_ERROR")
    with server.ws(query="?session_id=nobody") as connection:
        assert_error(json.loads(connection.recv(10)), "SESSION_ERROR")
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_a_session_of_another_environment_is_not_found(server: Running):
    with server.http() as caller, server.http("Lab-v0") as other:
        id = caller.post("/reset", json={}).headers["x-session-id"]
        assert_refused(other.get("/state", headers={"X-Session-Id": id}), "SESSION_ERROR")


def test_unknown_paths_methods_and_environments(server: Running, http: httpx.Client):
    assert_refused(http.get("/nothing"), "NOT_FOUND")
    assert_refused(http.get("/envs/Nothing-v0/health"), "NOT_FOUND")
    assert_refused(http.get("/envs/"), "NOT_FOUND")
    wrong = http.get("/step")
    assert_refused(wrong, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"] == "POST"
    assert_refused(http.put("/state", content=b""), "METHOD_NOT_ALLOWED")
    for path in ("/nothing", "/envs/Nothing-v0/ws"):
        with pytest.raises(InvalidStatus) as refused:
            server.ws(path.removesuffix("/ws").removeprefix("/envs/")).close()
        assert refused.value.response.status_code == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_another_host_is_rejected(server: Running, http: httpx.Client, host: str):
    assert_refused(http.get("/health", headers={"Host": host}), "FORBIDDEN")
    status, received = handshake(server, Host=host)
    assert (status, received["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "http://localhost:1"])
def test_another_origin_is_rejected(server: Running, http: httpx.Client, origin: str):
    assert_refused(http.post("/step", json=STEP, headers={"Origin": origin}), "FORBIDDEN")
    status, received = handshake(server, Origin=origin)
    assert (status, received["code"]) == (403, "FORBIDDEN")


def handshake(server: Running, **headers: str) -> tuple[int, Any]:
    """A WebSocket handshake by hand: the status, and the body of an error."""
    fields = {
        "Host": f"{server.host}:{server.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    } | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with server.raw() as caller:
        caller.sendall(f"GET /ws HTTP/1.1\r\n{lines}\r\n".encode())
        return read_response(caller)


def read_response(caller: socket.socket) -> tuple[int, Any]:
    """The status and the JSON of a response read by hand."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        came = caller.recv(65536)
        if not came:
            break
        raw += came
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next((int(line[15:]) for line in lines if line.lower().startswith("content-length:")), 0)
    while len(body) < length:
        body += caller.recv(65536)
    return int(lines[0].split()[1]), json.loads(body) if body else None


def test_the_page_of_this_server_may_call_it(server: Running):
    with server.http() as caller:
        assert caller.get("/health", headers={"Origin": server.url}).status_code == 200
    assert handshake(server, Origin=server.url)[0] == 101


def test_malformed_http_gets_a_json_error(server: Running, http: httpx.Client):
    with server.raw() as caller:
        caller.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
        status, received = read_response(caller)
    assert (status, received["code"]) == (400, "BAD_REQUEST")


def test_slow_headers_time_out(server: Running, http: httpx.Client):
    with server.raw() as caller:
        caller.sendall(b"POST /step HTTP/1.1\r\nHost: localhost\r\n")
        start = time.monotonic()
        status, received = read_response(caller)
        assert (status, received["code"]) == (408, "TOO_SLOW")
        assert caller.recv(1) == b""
    assert HEADER_TIMEOUT / 2 < time.monotonic() - start < 10 * HEADER_TIMEOUT


def test_headers_sent_line_by_line_time_out(server: Running):
    with server.raw() as caller:
        caller.sendall(b"GET /health HTTP/1.1\r\n")
        start = time.monotonic()
        with suppress(ConnectionError):
            for number in range(100):
                caller.sendall(b"X-%d: y\r\n" % number)
                time.sleep(0.1)
    assert time.monotonic() - start < 10 * HEADER_TIMEOUT


def test_a_slow_body_times_out(server: Running, http: httpx.Client):
    with server.raw() as caller:
        caller.sendall(b'POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"se')
        status, received = read_response(caller)
        assert (status, received["code"]) == (408, "TOO_SLOW")
        assert caller.recv(1) == b""


def test_a_half_closed_connection_gets_the_reply(server: Running, http: httpx.Client):
    body = json.dumps({"action": {"value": 1}, "timeout_s": 20}).encode()
    with server.http("Lab-v0") as opener:
        id = opener.post("/reset", json={"seed": 1}).headers["x-session-id"]
    with server.raw() as caller:
        head = (
            f"POST /envs/Lab-v0/step HTTP/1.1\r\nHost: localhost\r\nX-Session-Id: {id}\r\nContent-Length: {len(body)}"
        )
        caller.sendall(head.encode() + b"\r\n\r\n" + body)
        caller.shutdown(socket.SHUT_WR)
        status, received = read_response(caller)
        assert (status, received["observation"]["value"]) == (200, [1.0, 1.0])
        assert caller.recv(1) == b""


def test_a_connection_half_closed_during_a_request_has_no_effect(server: Running, http: httpx.Client):
    with server.raw() as caller:
        caller.sendall(b'POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"se')
        caller.shutdown(socket.SHUT_WR)
        caller.recv(65536)


def test_metrics_count_errors(http: httpx.Client):
    def error_count() -> int:
        received = re.search(r'tropism_errors_total\{code="INVALID_JSON"\} (\d+)', http.get("/metrics").text)
        return int(received[1]) if received else 0

    before = error_count()
    http.post("/step", content=b"{")
    http.post("/step", content=b"{")
    assert error_count() == before + 2
