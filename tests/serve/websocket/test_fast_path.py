"""The fast path: replies do not depend on how frames are split into pieces."""

import inspect
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.serve.running import Running, running
from uvicorn.protocols.websockets import websockets_sansio_impl
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import streams
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from tropism.serve.websocket import fast_path
from tropism.serve.websocket.fast_path import USED_ATTRIBUTES, FastPathSocket

PAUSE = 2e-3  # seconds between pieces, so that each arrives separately

WAYS_TO_SEND = (  # the last one is not handled by the fast path
    "whole",
    "fragments",
    "ping between fragments",
    "ping",
    "history",
)

requests = st.tuples(st.sampled_from(WAYS_TO_SEND), st.sampled_from([0, 5, 80, 120, 200, 70_000]))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0") as started:
        yield started


class Raw:
    """A WebSocket whose bytes the test splits."""

    def __init__(self, server: Running, id: str):
        self.socket = server.raw()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.protocol = ClientProtocol(parse_uri(f"ws://{server.host}:{server.port}/envs/{id}/ws"))
        self.protocol.send_request(self.protocol.connect())
        self.send(self.take_bytes())
        self.frames: list[Frame] = []
        while not self.protocol.handshake_exc and self.protocol.state.name != "OPEN":
            self.receive()

    def take_bytes(self) -> bytes:
        return b"".join(self.protocol.data_to_send())

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> None:
        self.protocol.receive_data(self.socket.recv(2**16))
        self.frames += [event for event in self.protocol.events_received() if isinstance(event, Frame)]

    def replies(self, count: int) -> tuple[list[Any], int]:
        """`count` messages, and the number of pongs among them."""
        while sum(frame.opcode is Opcode.TEXT for frame in self.frames) < count:
            self.receive()
        body = [json.loads(bytes(frame.data)) for frame in self.frames if frame.opcode is Opcode.TEXT]
        pongs = sum(frame.opcode is Opcode.PONG for frame in self.frames)
        self.frames.clear()
        return body, pongs


def write(protocol: ClientProtocol, way: str, frame: dict[str, Any]) -> None:
    text = json.dumps(frame).encode()
    if way == "ping":
        protocol.send_ping(b"here")
    elif "fragments" in way:
        middle = len(text) // 2
        protocol.send_text(text[:middle], fin=False)
        if "ping" in way:
            protocol.send_ping(b"there")
        protocol.send_continuation(text[middle:], fin=True)
    else:
        protocol.send_text(text)


@hypothesis_settings(max_examples=60)
@given(requests=st.lists(requests, min_size=1, max_size=8), cuts=st.lists(st.floats(0, 1), max_size=6))
def test_frames_may_arrive_in_any_pieces(server: Running, requests: list[tuple[str, int]], cuts: list[float]):
    raw = Raw(server, "Echo-v0")
    with raw.socket:
        write(raw.protocol, "whole", {"type": "reset", "id": -1})
        for number, (way, size) in enumerate(requests):
            request = {"type": "history"} if way == "history" else {"type": "step", "data": {"message": "x" * size}}
            write(raw.protocol, way, {**request, "id": number})
        write(raw.protocol, "whole", {"type": "state", "id": len(requests)})
        stream = raw.take_bytes()
        places = sorted(int(cut * len(stream)) for cut in cuts)
        for start, end in zip([0, *places], [*places, len(stream)], strict=True):
            raw.send(stream[start:end])
            time.sleep(PAUSE)
        expected = [(number, each) for number, each in enumerate(requests) if each[0] != "ping"]
        (_, *body, state), pongs = raw.replies(2 + len(expected))
    assert [reply["id"] for reply in body] == [number for number, _ in expected]
    assert pongs == sum("ping" in way for way, _ in requests)
    steps = 0
    for reply, (_, (way, size)) in zip(body, expected, strict=True):
        if way == "history":
            assert len(reply["data"]["steps"]) == steps
        else:
            steps += 1
            assert reply["data"]["observation"]["message_length"] == size
            assert reply["data"]["observation"]["metadata"] == {"step": steps}
    assert (state["id"], state["data"]["step_count"]) == (len(requests), steps)


def test_frames_that_arrive_together_are_answered_in_order(server: Running, monkeypatch: pytest.MonkeyPatch):
    """The event loop may read twice before anything else runs."""
    sockets: list[FastPathSocket] = []
    set_responder = FastPathSocket.set_responder
    monkeypatch.setattr(
        FastPathSocket, "set_responder", lambda self, answer: (sockets.append(self), set_responder(self, answer))
    )
    raw = Raw(server, "Echo-v0")
    with raw.socket:
        write(raw.protocol, "whole", {"type": "reset"})
        raw.send(raw.take_bytes())
        raw.replies(1)
        pieces: list[bytes] = []
        for number, kind in enumerate(("history", "state", "history", "state")):
            write(raw.protocol, "whole", {"type": kind, "id": number})
            pieces.append(raw.take_bytes())
        [reading] = sockets
        server.loop.call_soon_threadsafe(lambda: [reading.data_received(piece) for piece in pieces])
        assert [reply["id"] for reply in raw.replies(4)[0]] == [0, 1, 2, 3]


def without(name: str) -> type[WebSocketsSansIOProtocol]:
    """uvicorn's protocol as another version might have it: complete, but with another name for one attribute."""
    source = inspect.getsource(websockets_sansio_impl)
    source = re.sub(rf"\b(self\.|def ){name}\b", rf"\1other_{name}", source)
    namespace: dict[str, Any] = {"__name__": websockets_sansio_impl.__name__}
    exec(compile(source, websockets_sansio_impl.__file__, "exec"), namespace)
    return namespace["WebSocketsSansIOProtocol"]


def without_buffer() -> type[Any]:
    """The stream reader of websockets, with another name for its buffer."""
    namespace: dict[str, Any] = {"__name__": streams.__name__}
    exec(compile(inspect.getsource(streams).replace("self.buffer", "self.other_buffer"), "streams", "exec"), namespace)
    return namespace["StreamReader"]


@pytest.mark.parametrize("name", USED_ATTRIBUTES)
def test_a_session_is_served_without_an_attribute_of_uvicorn(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    if name == "conn.reader.buffer":
        monkeypatch.setattr("websockets.protocol.StreamReader", without_buffer())
    else:
        monkeypatch.setattr(fast_path, "WebSocketsSansIOProtocol", without(name))
    monkeypatch.setattr(FastPathSocket, "__init__", None)  # must not be used
    with caplog.at_level("WARNING"), running("Echo-v0") as server:
        raw = Raw(server, "Echo-v0")
        with raw.socket:
            write(raw.protocol, "whole", {"type": "reset"})
            for number in range(3):
                write(raw.protocol, "whole", {"type": "step", "data": {"message": "x" * number}})
            raw.send(raw.take_bytes())
            body, _ = raw.replies(4)
    assert [reply["data"]["observation"]["message_length"] for reply in body[1:]] == [0, 1, 2]
    assert [record.args for record in caplog.records if record.name == "tropism.serve"] == [(name,)]


def test_the_list_of_used_attributes_is_complete():
    used = set(re.findall(r"self\.(\w+)", inspect.getsource(FastPathSocket)))
    own = {"responder", "idle", "_try_respond", "_send", "__dict__"}
    assert used - own - {"config"} == {name.partition(".")[0] for name in USED_ATTRIBUTES} - {"handle_parser_exception"}
