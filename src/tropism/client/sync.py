"""The blocking client."""

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from tropism.client.launch import Process, docker_server, local_server
from tropism.client.protocol import (
    Connect,
    Effect,
    Exchange,
    Hangup,
    Protocol,
    SilenceError,
    Sleep,
    Talk,
    lost,
    refused,
)
from tropism.client.result import StepResult
from tropism.wire.messages import State

# Of both clients: up to 128 MiB in one reply, and no long wait for a server that does not say goodbye.
SOCKET: dict[str, Any] = {"max_size": 2**27, "proxy": None, "compression": None, "close_timeout": 1.0}
T = TypeVar("T")


class Driver:
    """Carries out what a protocol asks for, on one socket, waiting."""

    def __init__(self, timeout: float):
        self.timeout = timeout
        self._socket: ClientConnection | None = None
        self._held = ExitStack()  # the socket, entered

    def run(self, talk: Talk[T]) -> T:
        try:
            effect = next(talk)
            while True:
                try:
                    came = self._perform(effect)
                except InvalidStatus as error:
                    effect = talk.throw(refused(error.response.status_code, error.response.body))
                except SilenceError as error:
                    self._drop()
                    effect = talk.throw(error)
                except (OSError, WebSocketException) as error:
                    self._drop()
                    effect = talk.throw(lost(error))
                else:
                    effect = talk.send(came)
        except StopIteration as stop:
            return stop.value

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Connect(url, headers):
                self._held = ExitStack()
                self._socket = self._held.enter_context(connect(url, additional_headers=headers, **SOCKET))
            case Exchange(frame) if self._socket is not None:
                with suppress(ConnectionClosed):  # what the server said before it hung up can still be read
                    self._socket.send(frame)
                return self._receive(self._socket)
            case Sleep(seconds):
                time.sleep(seconds)
            case Hangup(frame):
                if frame is not None and self._socket is not None:
                    self._socket.send(frame)
                self._drop()
            case _:
                raise ConnectionError("no socket")
        return None

    def _receive(self, socket: ClientConnection) -> str | bytes:
        try:
            return socket.recv(self.timeout)
        except TimeoutError:
            raise SilenceError from None

    def _drop(self) -> None:
        self._socket = None
        self._held.close()


class Client:
    """Drives one session of a served environment; reconnects and resumes by itself.

    >>> with Client("http://localhost:8000/envs/Echo-v0") as client:
    ...     first = client.reset(seed=0)
    ...     result = client.step({"message": "hello"})
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 60.0, reconnect: float = 30.0):
        self._protocol = Protocol(url, token, reconnect)
        self._driver = Driver(timeout)
        self._server: Process | None = None

    @classmethod
    def launch(cls, id: str, **settings: Any) -> "Client":
        """A client of a server of its own, on this machine; closing it stops the server."""
        return cls._of(local_server(id), **settings)

    @classmethod
    def from_docker(cls, image: str, **settings: Any) -> "Client":
        """A client of a container of its own, made of this image; closing it removes the container."""
        return cls._of(docker_server(image), **settings)

    @classmethod
    def _of(cls, server: Process, **settings: Any) -> "Client":
        try:
            client = (
                cls(server.url, **settings) if server.token is None else cls(server.url, token=server.token, **settings)
            )
        except BaseException:
            server.stop()
            raise
        client._server = server
        return client

    @property
    def session_id(self) -> str | None:
        return self._protocol.session_id

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None, episode_id: str | None = None
    ) -> StepResult:
        return self._driver.run(self._protocol.reset(seed, options, episode_id))

    def step(self, action: Any) -> StepResult:
        """`action`: a message, a dict of its fields, words as a string, or the bare value of an array or number."""
        return self._driver.run(self._protocol.step(action))

    def state(self) -> State:
        return self._driver.run(self._protocol.state())

    def snapshot(self) -> str:
        return self._driver.run(self._protocol.snapshot())

    def restore(self, snapshot_id: str) -> StepResult:
        return self._driver.run(self._protocol.restore(snapshot_id))

    def fork(self, origin: str = "now", seed: int | None = None, *, step: int | None = None) -> "Client":
        """A client of a new session that goes on from where this one stands, from a snapshot, or from a step."""
        protocol = self._driver.run(self._protocol.fork(origin, seed, step))
        twin = Client(protocol.url, timeout=self._driver.timeout)
        twin._protocol = protocol
        return twin

    def history(self, start: int = 0) -> dict[str, Any]:
        return self._driver.run(self._protocol.history(start))

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
