"""A small TCP proxy that can close connections or drop replies."""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Forwards bytes in both directions between `url` and the server at `port`."""

    def __init__(self, port: int):
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.opened = 0
        self._deaf = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection now, without a goodbye."""
        pairs, self._pairs = self._pairs, []
        for one in (each for pair in pairs for each in pair):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def drop_next_reply(self) -> None:
        """The server hears the next request, its reply does not come through, and the connection ends."""
        self._deaf.set()

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self.opened += 1
            self._pairs.append((near, far))
            threading.Thread(target=self._carry, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, True), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, reply: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if reply and self._deaf.is_set():
                    self._deaf.clear()
                    break
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
