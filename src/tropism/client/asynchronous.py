"""The asyncio client."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from tropism.client.protocol import (
    Connect,
    Disconnect,
    Effect,
    EffectGenerator,
    Protocol,
    RoundTrip,
    Sleep,
    effect_error,
)
from tropism.client.result import StepResult
from tropism.client.sync import SOCKET
from tropism.wire.messages import State

T = TypeVar("T")


class AsyncClient:
    """`Client` for asyncio: controls one session of a served environment, and reconnects and resumes automatically.

    >>> async with AsyncClient("http://localhost:8000/envs/Echo-v0") as client:
    ...     first = await client.reset(seed=0)
    ...     result = await client.step({"message": "hello"})
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0, reconnect: float = 30.0):
        self._protocol = Protocol(url, token, reconnect)
        self._timeout = timeout
        self._socket: ClientConnection | None = None
        self._exit_stack = AsyncExitStack()  # closes the socket
        self._lock = asyncio.Lock()  # one request at a time, also with concurrent tasks

    @property
    def session_id(self) -> str | None:
        return self._protocol.session_id

    async def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None, episode_id: str | None = None
    ) -> StepResult:
        return await self._run(self._protocol.reset(seed, options, episode_id))

    async def step(self, action: Any) -> StepResult:
        """`action`: a message, a dict of its fields, a text that the environment parses, or a number or array."""
        return await self._run(self._protocol.step(action))

    async def state(self) -> State:
        return await self._run(self._protocol.state())

    async def snapshot(self) -> str:
        return await self._run(self._protocol.snapshot())

    async def restore(self, snapshot_id: str) -> StepResult:
        return await self._run(self._protocol.restore(snapshot_id))

    async def fork(self, origin: str = "now", seed: int | None = None, *, step: int | None = None) -> "AsyncClient":
        """A client of a new session that continues from `origin` ("now" or a snapshot id) or an earlier `step`."""
        protocol = await self._run(self._protocol.fork(origin, seed, step))
        twin = AsyncClient(protocol.url, timeout=self._timeout)
        twin._protocol = protocol
        return twin

    async def history(self, start: int = 0) -> dict[str, Any]:
        return await self._run(self._protocol.history(start))

    async def files(self) -> dict[str, int]:
        """The files of the episode: their sizes in bytes, by path."""
        return await self._run(self._protocol.files())

    async def read_file(self, path: str) -> bytes:
        return await self._run(self._protocol.read_file(path))

    async def write_file(self, path: str, data: bytes) -> None:
        """Create or replace a file of the episode; forks and snapshots have it too."""
        await self._run(self._protocol.write_file(path, data))

    async def tools(self) -> list[dict[str, Any]]:
        return await self._run(self._protocol.tools())

    async def close(self) -> None:
        await self._run(self._protocol.close())

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _run(self, effects: EffectGenerator[T]) -> T:
        async with self._lock:
            try:
                effect = next(effects)
                while True:
                    try:
                        result = await self._perform(effect)
                    except (OSError, WebSocketException) as error:
                        await self._disconnect()
                        effect = effects.throw(effect_error(effect, error))
                    else:
                        effect = effects.send(result)
            except StopIteration as stop:
                return stop.value
            except asyncio.CancelledError:
                await self._discard_reply()
                raise

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Connect(url, headers):
                self._exit_stack = AsyncExitStack()
                opening = connect(url, additional_headers=headers, **SOCKET)
                self._socket = await self._exit_stack.enter_async_context(opening)
            case RoundTrip(frame) if self._socket is not None:
                with suppress(ConnectionClosed):  # a frame sent before the server closed can still be read
                    await self._socket.send(frame)
                return await asyncio.wait_for(self._socket.recv(), self._timeout)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case Disconnect(frame):
                if frame is not None and self._socket is not None:
                    await self._socket.send(frame)
                await self._disconnect()
            case _:
                raise ConnectionError("no socket")
        return None

    async def _discard_reply(self) -> None:
        """Drop the connection, so that a late reply is not mistaken for the next one."""
        self._protocol.connected, self._protocol.step_count = False, None
        await self._disconnect()

    async def _disconnect(self) -> None:
        self._socket = None
        await self._exit_stack.aclose()
