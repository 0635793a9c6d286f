"""An episode survives its server: kill -9 the server during the episode, start it again, and continue."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tropism import Session, make
from tropism.client import Client


def serve(journal: Path, port: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "tropism", "serve", "CartPole-v1", "--port", port, "--journal", str(journal)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().split(" at ")[1].split()[0]  # serving 1 environment at http://…


def main() -> None:
    local = Session(*make("CartPole-v1"))
    local.reset(seed=7)
    with TemporaryDirectory() as folder:
        server, url = serve(Path(folder) / "journal", "0")
        with Client(url) as client:
            client.reset(seed=7)
            for step, action in enumerate([1, 0, 1, 1, 0, 1]):
                if step == 3:
                    server.kill()
                    server.wait()
                    server, _ = serve(Path(folder) / "journal", url.rpartition(":")[2])
                observation = client.step(action).observation["value"]
                assert np.array_equal(np.float32(observation), local.step(action).obs)
            print(f"{client.state().step_count} steps, one episode, two servers")
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
