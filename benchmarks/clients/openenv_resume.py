"""An official client whose base URL names its session: it continues its episode after a dropped socket and a restart.

Runs with OpenEnv and our dependencies.
"""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import requests
from openenv.core.generic_client import GenericEnvClient
from openenv_client import MESSAGE, expect, verdict


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


def session_url(url):
    """The base URL of a new session of Echo."""
    reply = requests.post(f"{url}/envs/Echo-v0/reset", json={"seed": 1}, timeout=30)
    return f"/envs/Echo-v0/s/{reply.json()['session_id']}"


async def dropped(url):
    async with (
        Proxy(int(url.rpartition(":")[2])) as proxy,
        GenericEnvClient(base_url=proxy.url + session_url(url)) as client,
    ):
        for count in (1, 2, 3):
            result = await client.step(MESSAGE)
            expect(result.observation["metadata"]["step"], count)
            proxy.cut()
            await asyncio.sleep(0.2)  # the client reads the end of its socket
        expect((await client.state())["step_count"], 3)


@contextmanager
def serving(port, journal):
    command = [sys.executable, "-m", "tropism", "serve", "Echo-v0", "--port", str(port), "--journal", journal]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().split(" at ")[1].split()[0]
    finally:
        server.kill()
        server.communicate()


async def restarted(_url):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        journal = str(Path(folder, "journal"))
        with serving(port, journal) as url:
            client = GenericEnvClient(base_url=url + session_url(url))
            await client.connect()
            expect((await client.step(MESSAGE)).observation["metadata"]["step"], 1)
        with serving(port, journal):
            await asyncio.sleep(0.2)
            expect((await client.step(MESSAGE)).observation["metadata"]["step"], 2)
            expect((await client.state())["step_count"], 2)
            await client.close()


CHECKS = {"GenericEnvClient, dropped socket": dropped, "GenericEnvClient, killed server": restarted}

if __name__ == "__main__":
    print(json.dumps({name: verdict(check, sys.argv[1]) for name, check in CHECKS.items()}))
