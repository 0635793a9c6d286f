"""The blocking client."""

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from tropism.client.launch import ServerProcess, container_server, local_server
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
from tropism.wire.messages import State

# For both clients: replies up to 128 MiB, and a short wait for the closing handshake.
SOCKET: dict[str, Any] = {"max_size": 2**27, "proxy": None, "compression": None, "close_timeout": 1.0}
T = TypeVar("T")


class Driver:
    """Performs the effects of a protocol on one socket, blocking."""

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._socket: ClientConnection | None = None
        self._exit_stack = ExitStack()  # closes the socket

    def run(self, effects: EffectGenerator[T]) -> T:
        try:
            effect = next(effects)
            while True:
                try:
                    result = self._perform(effect)
                except (OSError, WebSocketException) as error:
                    self._disconnect()
                    effect = effects.throw(effect_error(effect, error))
                else:
                    effect = effects.send(result)
        except StopIteration as stop:
            return stop.value

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Connect(url, headers):
                self._exit_stack = ExitStack()
                self._socket = self._exit_stack.enter_context(connect(url, additional_headers=headers, **SOCKET))
            case RoundTrip(frame) if self._socket is not None:
                with suppress(ConnectionClosed):  # a frame sent before the server closed can still be read
                    self._socket.send(frame)
                return self._socket.recv(self.timeout)
            case Sleep(seconds):
                time.sleep(seconds)
            case Disconnect(frame):
                if frame is not None and self._socket is not None:
                    self._socket.send(frame)
                self._disconnect()
            case _:
                raise ConnectionError("no socket")
        return None

    def _disconnect(self) -> None:
        self._socket = None
        self._exit_stack.close()


class Client:
    """Controls one session of a served environment; reconnects and resumes automatically.

    `timeout` is the time to wait for a reply, `reconnect` the time to try to connect again, in seconds.

    >>> with Client("http://localhost:8000/envs/Echo-v0") as client:
    ...     first = client.reset(seed=0)
    ...     result = client.step({"message": "hello"})
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0, reconnect: float = 30.0):
        self._protocol = Protocol(url, token, reconnect)
        self._driver = Driver(timeout)
        self._server: ServerProcess | None = None

    @classmethod
    def launch(cls, id: str, **settings: Any) -> "Client":
        """Start a server on this machine and connect to it; closing the client stops the server."""
        return cls._connect_to(local_server(id), **settings)

    @classmethod
    def from_container(
        cls, image: str, id: str | None = None, *, engine: str | None = None, **settings: Any
    ) -> "Client":
        """Start a container of this image that serves `id`, and connect; closing the client removes the container.

        `engine` is the command of the container engine; by default docker, or else podman.
        """
        return cls._connect_to(container_server(image, id, engine), **settings)

    @classmethod
    def from_docker(cls, image: str, id: str | None = None, **settings: Any) -> "Client":
        """As `from_container`, with docker."""
        return cls.from_container(image, id, engine="docker", **settings)

    @classmethod
    def _connect_to(cls, server: ServerProcess, **settings: Any) -> "Client":
        settings = {"token": server.token, **settings}
        try:
            client = cls(server.url, **settings)
        except BaseException:
            server.stop()
            raise
        client._server = server
        return client

    @property
    def url(self) -> str:
        """The address of the environment."""
        return self._protocol.url

    @property
    def session_id(self) -> str | None:
        return self._protocol.session_id

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None, episode_id: str | None = None
    ) -> StepResult:
        return self._driver.run(self._protocol.reset(seed, options, episode_id))

    def step(self, action: Any) -> StepResult:
        """`action`: a message, a dict of its fields, a text that the environment parses, or a number or array."""
        return self._driver.run(self._protocol.step(action))

    def state(self) -> State:
        return self._driver.run(self._protocol.state())

    def snapshot(self) -> str:
        return self._driver.run(self._protocol.snapshot())

    def restore(self, snapshot_id: str) -> StepResult:
        return self._driver.run(self._protocol.restore(snapshot_id))

    def fork(self, origin: str = "now", seed: int | None = None, *, step: int | None = None) -> "Client":
        """A client of a new session that continues from `origin` ("now" or a snapshot id) or an earlier `step`."""
        protocol = self._driver.run(self._protocol.fork(origin, seed, step))
        twin = Client(protocol.url, timeout=self._driver.timeout)
        twin._protocol = protocol
        return twin

    def history(self, start: int = 0) -> dict[str, Any]:
        return self._driver.run(self._protocol.history(start))

    def files(self) -> dict[str, int]:
        """The files of the episode: their sizes in bytes, by path."""
        return self._driver.run(self._protocol.files())

    def read_file(self, path: str) -> bytes:
        return self._driver.run(self._protocol.read_file(path))

    def write_file(self, path: str, data: bytes) -> None:
        """Create or replace a file of the episode; forks and snapshots have it too."""
        self._driver.run(self._protocol.write_file(path, data))

    def tools(self) -> list[dict[str, Any]]:
        """The action as tools for a language model: name, description and input schema of each."""
        return self._driver.run(self._protocol.tools())

    def close(self) -> None:
        try:
            self._driver.run(self._protocol.close())
        finally:
            if self._server is not None:
                self._server.stop()
                self._server = None

    def __repr__(self) -> str:
        return f"Client({self._protocol.url!r}, session_id={self.session_id!r})"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
