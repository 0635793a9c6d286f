"""Assertions about the replies of a server."""

from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tropism.serve.errors import STATUS


def assert_refused(response: httpx.Response, code: str) -> dict[str, Any]:
    body = response.json()
    assert (response.status_code, body["code"]) == (STATUS[code], code), response.text
    assert set(body) <= {"message", "code", "id", "step_count"}
    assert body["message"]
    assert "Traceback" not in response.text
    return body


def assert_error(frame: dict[str, Any], code: str) -> dict[str, Any]:
    assert frame["type"] == "error", frame
    assert frame["data"]["code"] == code, frame
    assert set(frame) <= {"type", "data", "id"}
    assert set(frame["data"]) <= {"message", "code", "id", "step_count"}
    assert frame["data"]["message"]
    assert "Traceback" not in frame["data"]["message"]
    return frame["data"]


def talk_close(connection: ClientConnection) -> None:
    connection.send('{"type": "close"}')
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000
