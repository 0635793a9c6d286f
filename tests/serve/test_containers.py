"""The image, with podman and runc: its steps, one container per agent, a killed one, and a journal taken over."""

import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.peers import ROOT, UnavailableError, python_of
from tests.serve.containers import IMAGE, LIMITS, build_image, engine, import_base, podman

from tropism.client import Client
from tropism.errors import MissingExtraError, ServerError

TOKEN = "container-token"


@pytest.fixture(scope="module", autouse=True)
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let a plain `podman` use runc, and limits that this kernel accepts."""
    file = tmp_path_factory.mktemp("podman") / "containers.conf"
    limits = json.dumps([limit for limit in LIMITS if "=" in limit])
    file.write_text(f'[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = {limits}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(file))
        yield


@pytest.fixture(scope="module")
def image(configuration: None) -> str:
    engine()
    import_base()
    build_image()
    return IMAGE


@contextmanager
def container(image: str, port: int, volume: str, *ids: str) -> Generator[str]:
    """A container with its journal on a volume; it is removed at the end, killed or not."""
    name = f"tropism-{secrets.token_hex(4)}"
    stored = ("--volume", f"{volume}:/sessions", "--env", f"TROPISM_TOKEN={TOKEN}")
    podman("run", "--detach", "--name", name, "--publish", f"127.0.0.1:{port}:8000", *stored, image, *ids)
    try:
        yield name
    finally:
        podman("rm", "--force", "--time", "0", name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def client(port: int, id: str) -> Client:
    return Client(f"http://127.0.0.1:{port}/envs/{id}", token=TOKEN, reconnect=120)


def begin(player: Client, seed: int) -> None:
    """Reset as soon as the server of a new container accepts connections."""
    deadline = time.monotonic() + 120
    while True:
        try:
            player.reset(seed=seed)
            return
        except ServerError as error:
            if error.code != "UNREACHABLE" or time.monotonic() > deadline:
                raise


@pytest.mark.full
def test_a_client_starts_a_container_with_the_environment_of_its_choice(image: str):
    before = podman("ps", "--quiet").split()
    with Client.from_container(image, "ConnectFour-v0", engine="podman") as player:
        player.reset(seed=1)
        assert player.step({"column": 3}).observation.legal_actions
        assert len(podman("ps", "--quiet").split()) == len(before) + 1
    assert podman("ps", "--quiet").split() == before


@pytest.mark.full
def test_a_killed_container_harms_no_other_and_the_next_takes_its_journal_over(image: str, tmp_path: Path):
    ports, volumes = [free_port(), free_port()], [tmp_path / "one", tmp_path / "other"]
    for volume in volumes:
        volume.mkdir()
        os.chown(volume, 1000, 1000)
    with (
        container(image, ports[0], str(volumes[0]), "Echo-v0") as first,
        container(image, ports[1], str(volumes[1]), "Echo-v0"),
        client(ports[0], "Echo-v0") as one,
        client(ports[1], "Echo-v0") as other,
    ):
        for player in (one, other):
            begin(player, seed=1)
            player.step({"message": "hello"})
        podman("kill", "--signal", "KILL", first)
        podman("rm", "--force", first)
        assert other.step({"message": "still here"}).observation.metadata == {"step": 2}
        with container(image, ports[0], str(volumes[0]), "Echo-v0"):
            assert one.step({"message": "again"}).observation.metadata == {"step": 2}
            assert one.state().step_count == 2


@contextmanager
def composed(image: str, agents: int) -> Generator[list[str]]:
    """The containers of compose.yaml, with an image that has been built; yields their names."""
    try:
        compose = Path(python_of("podman-compose")).with_name("podman-compose")
    except UnavailableError as error:
        pytest.skip(f"podman-compose: {error}")
    project = f"tropism-{secrets.token_hex(4)}"
    names = [f"{project}_agent_{number + 1}" for number in range(agents)]
    podman("tag", image, f"localhost/{project}_agent")
    command = [str(compose), "-f", str(ROOT / "compose.yaml"), "-p", project, "up", "--detach", "--no-build"]
    try:
        up = subprocess.run(
            [*command, "--scale", f"agent={agents}"],
            env=os.environ | {"TROPISM_TOKEN": TOKEN},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert up.returncode == 0, up.stderr[-2000:]
        yield names
    finally:
        podman("rm", "--force", "--ignore", "--time", "0", "--volumes", *names)
        podman("pod", "rm", "--force", "--ignore", f"pod_{project}")
        podman("network", "rm", "--force", f"{project}_default")
        podman("untag", image, f"localhost/{project}_agent")


@pytest.mark.full
def test_compose_runs_one_container_per_agent(image: str):
    with composed(image, 2) as names:
        ports = [int(podman("port", name, "8000").rpartition(":")[2]) for name in names]
        with client(ports[0], "ConnectFour-v0") as one, client(ports[1], "ConnectFour-v0") as other:
            for player in (one, other):
                begin(player, seed=1)
            one.step({"column": 3})
            assert (one.state().step_count, other.state().step_count) == (1, 0)
        limits = podman("inspect", "--format", "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.PidsLimit}}", *names)
        assert limits.splitlines() == ["true 256"] * 2


def test_a_missing_engine_is_named():
    with pytest.raises(MissingExtraError, match="no-such-engine"):
        Client.from_container("image", "Echo-v0", engine="no-such-engine")
