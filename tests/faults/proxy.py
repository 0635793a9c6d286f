"""A TCP proxy that injects faults into the replies of a server."""

import random
import socket
import threading
import time
from contextlib import suppress

FAULTS = ("cut", "delay", "duplicate", "half-close", "truncate")


class FaultyProxy:
    """Forwards bytes between `url` and the server at `port`; one of `every` messages after the handshake is faulty.

    cut: both connections end before it; delay: it waits; duplicate: a request is sent twice; half-close: the server
    sees the end of the requests; truncate: its first half is sent, then the connections end.
    """

    def __init__(self, port: int, fault: str, every: int, seed: int = 0):
        self._target = port
        self._fault = fault
        self._every = every
        self._draw = random.Random(seed)
        self.injected = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            for source, sink, requests in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._carry, args=(source, sink, requests), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, requests: bool) -> None:
        handshake = True
        with suppress(OSError):
            while data := source.recv(65536):
                if not handshake and self._draw.randrange(self._every) == 0 and not self._inject(data, sink, requests):
                    break
                sink.sendall(data)
                handshake = False
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _inject(self, data: bytes, sink: socket.socket, requests: bool) -> bool:
        """Inject the fault; returns whether the message is forwarded after it."""
        self.injected += 1
        match self._fault:
            case "delay":
                time.sleep(0.05)
            case "duplicate" if requests:
                sink.sendall(data)
            case "half-close" if requests:
                sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)
                time.sleep(0.05)
                return False
            case "truncate":
                sink.sendall(data[: len(data) // 2])
                return False
            case "cut":
                return False
            case _:
                self.injected -= 1
        return True
