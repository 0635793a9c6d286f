"""Connections that are cut, delayed, doubled, half closed and truncated: every step is applied once."""

from collections.abc import Iterator

import pytest
from tests.faults.proxy import FAULTS, FaultyProxy
from tests.serve.running import Running, running

from tropism.client import Client

STEPS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0") as server:
        yield server


@pytest.mark.parametrize("fault", FAULTS)
def test_each_step_is_applied_once(server: Running, fault: str):
    proxy = FaultyProxy(server.port, fault, every=12)
    try:
        with Client(f"{proxy.url}/envs/Echo-v0", timeout=5.0) as client:
            client.reset(seed=1)
            for number in range(STEPS):
                result = client.step({"message": f"message {number}"})
                assert result.observation.echoed_message == f"message {number}"
                assert result.observation.metadata == {"step": number + 1}
            sent = [step["action"]["message"] for step in client.history()["steps"]]
    finally:
        proxy.close()
    assert sent == [f"message {number}" for number in range(STEPS)]
    assert proxy.injected > 0


def test_a_duplicated_request_is_performed_once(server: Running):
    """A repeated frame has the same request id: its reply comes twice, and the step is applied once."""
    with server.ws() as connection:
        connection.send('{"type": "reset"}')
        connection.recv(10)
        for number in range(STEPS):
            frame = f'{{"type": "step", "data": {{"message": "a"}}, "request_id": "r{number}", "after": {number}}}'
            connection.send(frame)
            connection.send(frame)
            assert connection.recv(10) == connection.recv(10)
        connection.send('{"type": "state"}')
        assert f'"step_count":{STEPS}' in str(connection.recv(10))
