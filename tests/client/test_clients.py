"""The sync and async clients behave the same against a real server, and resume their episodes."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.client.proxy import Proxy
from tests.serve.lab import LONG_SLEEP, RAISE, SLEEP, STAY
from tests.serve.running import Running, labs, running, until

from tropism.client import AsyncClient, Client, StepResult, VectorClient
from tropism.errors import ServerError, StateError, ValidationError
from tropism.wire.messages import State
from tropism.wire.messages.connect_four import ConnectFourAction, ConnectFourObservation


class Blocking:
    """An async client with the interface of the sync client."""

    def __init__(self, url: str, **settings: Any):
        self._client = AsyncClient(url, **settings)
        self._loop = asyncio.new_event_loop()

    def __getattr__(self, name: str) -> Any:
        attribute: Any = getattr(self._client, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            awaitable: Any = attribute(*arguments, **named)
            result = self._loop.run_until_complete(awaitable)
            return self._twin(result) if isinstance(result, AsyncClient) else result

        return call

    def _twin(self, client: AsyncClient) -> "Blocking":
        twin = object.__new__(Blocking)
        twin._loop, twin._client = self._loop, client
        return twin

    def __enter__(self) -> "Blocking":
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("ConnectFour-v0", "CartPole-v1", "Echo-v0", own=labs()) as started:
        yield started


@pytest.fixture
def proxy(server: Running) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture(params=[Client, Blocking], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param


def test_episode(server: Running, kind: Any):
    with kind(f"{server.url}/envs/Lab-v0") as client:
        assert client.state() == State(episode_id=None, step_count=0)
        first = client.reset(seed=7, episode_id="mine")
        assert isinstance(first, StepResult)
        assert first.observation == {"value": [7.0, 0.0], "text": "Observation: [7. 0.]", "metadata": {}}
        assert (first.reward, first.done) == (0.0, False)
        for action in (STAY, {"value": STAY}, np.int64(STAY), "0"):
            then = client.step(action)
        assert then.observation["value"] == [7.0, 4.0]
        assert client.state() == State(episode_id="mine", step_count=4)
        history = client.history(2)
        assert (history["seed"], len(history["steps"])) == (7, 2)
        snapshot = client.snapshot()
        ended = client.step({"value": 3})
        assert (ended.done, ended.terminated, ended.truncated) == (True, True, False)
        assert client.restore(snapshot).observation["value"] == [7.0, 4.0]


def test_fork_returns_an_independent_client(server: Running, kind: Any):
    with kind(f"{server.url}/envs/Lab-v0") as client:
        client.reset(seed=1)
        twin = client.fork()
        client.step(STAY)
        assert twin.state().step_count == 0
        assert twin.step(STAY).observation["value"] == [1.0, 1.0]
        assert twin.session_id != client.session_id
        twin.close()


def test_fork_from_any_step(server: Running, kind: Any):
    with kind(server.url) as client:
        client.reset(seed=4)
        played = [client.step({"value": column}) for column in (3, 3, 2)]
        twin, other = client.fork(step=1), client.fork(seed=9, step=1)
        assert twin.state().step_count == 1
        assert [twin.step({"value": column}) for column in (3, 2)] == played[1:]
        assert [row.get("seed") for row in other.history()["steps"]] == [None, 9]
        twin.close()
        other.close()
        assert client.state().step_count == 3
        with pytest.raises(ValidationError, match="0 to 3"):
            client.fork(step=4)
        with pytest.raises(ValidationError, match="snapshot"):
            client.fork(client.snapshot(), step=1)


def test_known_environments_have_typed_messages(server: Running, kind: Any):
    with kind(server.url) as client:
        first = client.reset(seed=0).observation
        assert isinstance(first, ConnectFourObservation)
        then = client.step(ConnectFourAction(column=3)).observation
        assert isinstance(then, ConnectFourObservation)
        assert np.shape(then.board) == (6, 7)
        assert then.legal_actions


def test_errors_equal_those_of_a_local_session(server: Running, kind: Any):
    with kind(f"{server.url}/envs/Lab-v0") as client:
        with pytest.raises(StateError, match="reset"):
            client.step(STAY)
        client.reset(seed=1)
        with pytest.raises(ValidationError):
            client.step(99)
        with pytest.raises(ValidationError):
            client.reset(seed=-1)
        with pytest.raises(ValidationError, match="NaN"):
            client.step(float("nan"))
        with pytest.raises(ValidationError, match="JSON"):
            client.step(object())
        with pytest.raises(ServerError) as raised:
            client.step(RAISE)
        assert raised.value.code == "EXECUTION_ERROR"
        assert raised.value.id
        assert client.step(STAY).observation["value"] == [1.0, 1.0]
        client.step({"value": 3})
        with pytest.raises(StateError):
            client.step(STAY)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://", ""])
def test_invalid_urls_are_rejected(kind: Any, url: str):
    with pytest.raises(ValidationError, match="http://localhost:8000"):
        kind(url)


def test_closed_client_raises_state_error(server: Running, kind: Any):
    before = len(server.app.sessions)
    with kind(f"{server.url}/envs/Lab-v0") as client:
        client.reset(seed=1)
        assert len(server.app.sessions) == before + 1
        client.close()
        client.close()
        with pytest.raises(StateError, match="closed"):
            client.step(STAY)
    until(lambda: len(server.app.sessions) == before)


def test_missing_server_is_unreachable(kind: Any):
    start = time.monotonic()
    with kind("http://127.0.0.1:9", reconnect=0.2) as client:
        with pytest.raises(ServerError) as raised:
            client.reset()
        assert raised.value.code == "UNREACHABLE"
    assert time.monotonic() - start < 5


def test_rejected_handshake_raises_immediately(kind: Any, server: Running):
    with running(own=labs(), tokens=("secret",)) as guarded:
        with kind(guarded.url, token="wrong") as client, pytest.raises(ServerError) as raised:
            client.reset()
        assert raised.value.code == "UNAUTHORIZED"
        with kind(guarded.url, token="secret") as client:
            client.reset(seed=1)
            twin = client.fork()
            assert twin.step(STAY).observation["value"] == [1.0, 1.0]
            twin.close()
    with kind(f"{server.url}/envs/Nothing-v0") as client, pytest.raises(ServerError) as raised:
        client.reset()
    assert raised.value.code == "NOT_FOUND"


def test_lost_connection_resumes_the_episode(server: Running, proxy: Proxy, kind: Any):
    with kind(f"{proxy.url}/envs/CartPole-v1") as client, kind(f"{server.url}/envs/CartPole-v1") as other:
        for each in (client, other):
            each.reset(seed=5)
        for number, action in enumerate((1, 0, 1, 1, 0)):
            if number % 2:
                proxy.cut()
            assert client.step(action) == other.step(action)
        assert client.state().step_count == 5
    assert proxy.opened == 3


def test_step_with_lost_reply_takes_effect_once(server: Running, proxy: Proxy, kind: Any):
    with kind(f"{proxy.url}/envs/Lab-v0") as client:
        client.reset(seed=5)
        for number in range(1, 4):
            proxy.drop_next_reply()
            assert client.step(STAY).observation["value"] == [5.0, float(number)]
        assert client.state().step_count == 3
        assert len(client.history()["steps"]) == 3


def test_reply_timeout_raises_and_keeps_the_step(server: Running, kind: Any):
    with kind(f"{server.url}/envs/Lab-v0", timeout=0.1) as client:
        client.reset(seed=5)
        with pytest.raises(ServerError) as raised:
            client.step(SLEEP)
        assert raised.value.code == "TIMEOUT"
        time.sleep(0.5)
        assert client.state().step_count == 1


def test_missing_session_raises_and_reset_creates_another(server: Running, proxy: Proxy, kind: Any):
    with kind(f"{proxy.url}/envs/Unwritable-v0") as client:
        client.reset(seed=5)
        with kind(f"{server.url}/envs/Unwritable-v0") as killer:
            killer.reset()
        gone = client.session_id
        proxy.cut()
        server.app.sessions._remove(server.app.sessions._live[gone])  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(ServerError) as raised:
            client.step(STAY)
        assert raised.value.code == "SESSION_ERROR"
        assert "cannot be replayed" in raised.value.message
        assert client.reset(seed=6).observation["value"] == [6.0, 0.0]
        assert client.session_id != gone


async def step_async(url: str) -> None:
    async with AsyncClient(url) as client:
        client._protocol.session_id = "gone"  # pyright: ignore[reportPrivateUsage]
        await client._run(client._protocol.ensure_connected())  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.3)
        await client.step(STAY)


def step_sync(url: str) -> None:
    with Client(url) as client:
        client._protocol.session_id = "gone"  # pyright: ignore[reportPrivateUsage]
        client._driver.run(client._protocol.ensure_connected())  # pyright: ignore[reportPrivateUsage]
        time.sleep(0.3)
        client.step(STAY)


@pytest.mark.parametrize("act", [step_sync, lambda url: asyncio.run(step_async(url))], ids=["sync", "async"])
def test_error_sent_before_closing_is_raised(server: Running, act: Callable[[str], None]):
    with pytest.raises(ServerError, match="no session 'gone' of Lab-v0 is yours") as raised:
        act(f"{server.url}/envs/Lab-v0")
    assert raised.value.code == "SESSION_ERROR"


def test_close_does_not_wait_for_a_missing_server(kind: Any):
    with running(own=labs()) as server:
        client = kind(server.url)
        client.reset()
    start = time.monotonic()
    with client:
        pass
    assert time.monotonic() - start < 5


def test_cancelled_requests_do_not_mix_up_replies(server: Running):
    async def scene() -> Any:
        async with AsyncClient(f"{server.url}/envs/Lab-v0") as client:
            await client.reset(seed=5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.step(SLEEP), 0.05)
            state = await client.state()
            then = await client.step(STAY)
            return state, then.observation["value"]

    state, value = asyncio.run(scene())
    assert value == [5.0, 2.0]
    assert state.step_count == 1


def test_concurrent_tasks_share_one_async_client(server: Running):
    async def scene() -> Any:
        async with AsyncClient(f"{server.url}/envs/Lab-v0") as client:
            await client.reset(seed=5)
            results = await asyncio.gather(*(client.step(STAY) for _ in range(10)))
            return [result.observation["value"][1] for result in results]

    assert asyncio.run(scene()) == [float(number) for number in range(1, 11)]


def test_async_clients_do_not_wait_for_each_other(server: Running):
    async def episode(action: int) -> None:
        async with AsyncClient(f"{server.url}/envs/Lab-v0") as client:
            await client.reset()
            await client.step(action)

    async def scene() -> None:
        await asyncio.gather(*(episode(SLEEP) for _ in range(8)))

    start = time.monotonic()
    asyncio.run(scene())
    assert time.monotonic() - start < LONG_SLEEP  # eight sleeps one after another take longer


def test_vector_client_reports_a_lost_batch(proxy: Proxy):
    with VectorClient(f"{proxy.url}/envs/CartPole-v1", 4, seed=3) as client:
        assert client.step([0, 1, 0, 1])["observation"].shape == (4, 4)
        with pytest.raises(ValidationError):
            client.step([0, 1])
        with pytest.raises(ValidationError):
            client.step([0, 1, 0, 9])
        again = client.reset(seed=np.arange(3, 7))
        assert np.array_equal(again["observation"], client.first["observation"])
        proxy.cut()
        for _ in range(2):
            with pytest.raises(ServerError) as raised:
                client.step([0, 1, 0, 1])
            assert raised.value.code == "SESSION_ERROR"


def test_launch_starts_and_stops_a_server():
    with Client.launch("GridWorld-v0") as client:
        url = client._protocol.url  # pyright: ignore[reportPrivateUsage]
        assert client.reset(seed=1).observation["value"] == [0.0, 0.0]
        assert client.step("right").observation["value"] == [0.0, 0.25]
    with Client(url, reconnect=0.1) as late, pytest.raises(ServerError):
        late.reset()


@pytest.mark.slow
def test_launch_of_unknown_id_reports_the_reason():
    with pytest.raises(ServerError, match="Nothing-v0"):
        Client.launch("Nothing-v0")


@pytest.mark.parametrize("name", ["Client", "AsyncClient", "StepResult"])
def test_clients_import_neither_jax_nor_gymnasium_nor_numpy(name: str):
    heavy = "('jax', 'jaxlib', 'equinox', 'gymnasium', 'numpy')"
    code = f"import sys; from tropism.client import {name}; print(*[m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_too_large_request_is_rejected_and_the_episode_continues(server: Running, kind: Any):
    with kind(f"{server.url}/envs/Lab-v0") as client:
        client.reset(seed=1)
        with pytest.raises(ServerError) as raised:
            client.step({"text": "x" * (2**20 + 10)})
        assert raised.value.code == "TOO_LARGE"
        assert client.step(STAY).reward == 1.0


def test_unparsable_text_leaves_the_observation_unchanged(server: Running, kind: Any):
    with kind(f"{server.url}/envs/ConnectFour-v0") as client:
        client.reset(seed=1)
        result = client.step("column nine, please")
        assert isinstance(result.observation, ConnectFourObservation)
        assert result.error is not None
        assert "column" in result.error
        assert "Legal columns" in result.text
        assert client.state().step_count == 0


def test_result_text_without_observation_text(server: Running, kind: Any):
    with kind(f"{server.url}/envs/Echo-v0") as client:
        assert client.reset(seed=1).text == "echoed_message: \nmessage_length: 0"
        assert client.step({"message": "héllo"}).text == "echoed_message: héllo\nmessage_length: 5"


@pytest.mark.slow
def test_missing_server_is_reported_within_seconds(kind: Any):
    start = time.monotonic()
    with kind("http://127.0.0.1:9/envs/Lab-v0") as client, pytest.raises(ServerError) as raised:
        client.reset()
    assert raised.value.code == "UNREACHABLE"
    assert time.monotonic() - start < 20


def test_cancelled_step_does_not_admit_another(server: Running):
    async def give_up() -> None:
        session = await server.app.sessions.open(server.app.environments["Lab-v0"], "somebody")
        try:
            await session.perform("reset", {"seed": 1})
            slow = asyncio.ensure_future(session.perform("step", {"value": SLEEP}))
            await asyncio.sleep(0.1)
            slow.cancel()
            await session.perform("step", {"value": STAY})
            assert session.session.step_count == 2
        finally:
            await server.app.sessions.close(session)

    asyncio.run(give_up())
