"""Servers in their own process, with limits of the shell."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.serve.running import until


@contextmanager
def limited_server(command: str, folder: Path) -> Generator[tuple[str, Path]]:
    """A server that this shell command starts; its URL, and the file with its output."""
    log = folder / "output"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", command], stdout=output, stderr=output, env={**os.environ, "PATH": path}
        )
    try:
        until(lambda: re.search(r"at (http://\S+)", log.read_text()) is not None, 60)
        address = re.search(r"at (http://\S+)", log.read_text())
        assert address is not None
        yield address[1], log
    finally:
        process.kill()
        process.wait()


def socket_to(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)
