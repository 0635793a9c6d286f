"""Interruptions of a client: a proxy that drops its connections, and a server that is killed and started again.

Runs in the virtual environments of the clients; the server runs in ours.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen


class Proxy:
    """Forwards connections to a port; `cut` drops all of them."""

    def __init__(self, port):
        self._port = port
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self.cut()
        self._server.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _forward(self, reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, up_writer]
        await asyncio.gather(self._copy(reader, up_writer), self._copy(up_reader, writer))

    async def _copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()
        except OSError:
            pass

    def cut(self):
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


def session_url(url, id):
    """The base URL of a new session."""
    begin = Request(f"{url}/envs/{id}/reset", b'{"seed": 1}', {"Content-Type": "application/json"})
    with urlopen(begin, timeout=30) as reply:
        return f"/envs/{id}/s/{json.load(reply)['session_id']}"


class Server:
    """A server of some environments on one port, whose journal outlives it."""

    def __init__(self, *ids):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._folder = tempfile.TemporaryDirectory()
        journal = str(Path(self._folder.name, "journal"))
        python = os.environ.get("TROPISM_PYTHON", sys.executable)
        self._command = [python, "-m", "tropism", "serve", *ids, "--port", str(self._port), "--journal", journal]
        self.start()

    def start(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self.url = self._process.stdout.readline().split(" at ")[1].split()[0]

    def kill(self):
        self._process.kill()
        self._process.communicate()

    def restart(self):
        self.kill()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._folder.cleanup()


@contextmanager
def proxy_in_thread(url):
    """A proxy on an event loop of its own, for a client that blocks; yields its address and the function `cut`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = Proxy(int(url.rpartition(":")[2]))

    def wait_for(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    async def cut():
        proxy.cut()

    wait_for(proxy.__aenter__())
    try:
        yield proxy.url, lambda: wait_for(cut())
    finally:
        wait_for(proxy.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
