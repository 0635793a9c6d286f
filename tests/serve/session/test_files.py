"""Files of a session: uploads over HTTP and by clients, journaled, limited, and unable to leave the workspace."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.serve.replies import assert_refused
from tests.serve.running import Running, Servers, running

from tropism.client import AsyncClient, Client
from tropism.envs.coding.coding import MAX_UPLOADS, Coding
from tropism.errors import ServerError, StateError, ValidationError
from tropism.sandbox.pool import unavailable_reason
from tropism.serve.session.environment import ServedEnvironment
from tropism.serve.storage.sqlite import LOG_SIZE

REASON = unavailable_reason("A")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
ID = "Coding-v0"
ESCAPES = ("../x", "a/../../x", "/etc/passwd", "./x", "a//b", "a/", "\n", "x" * 256, "/".join("a" * 33), "..")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    small = Coding(tier="A", files=2**16)
    own = {"Small-v0": ServedEnvironment("Small-v0", small, small.default_params(), "With little room.")}
    with running(ID, "Echo-v0", "GridWorld-v0", own=own) as started:
        yield started


def test_files_are_listed_read_and_written_over_http(server: Running):
    with server.http(ID) as http:
        assert_refused(http.get("/files"), "STATE_ERROR")
        http.post("/reset", json={"seed": 0})
        assert http.get("/files").json()["files"] == {}
        content = bytes(range(256))
        path = "data/every byte.bin"
        written = http.put(f"/files/{path}", content=content).json()
        assert written == {"path": path, "size": 256, "step_count": 0}
        code = "data = open('data/every byte.bin', 'rb').read(); open('copy', 'wb').write(data[::-1])"
        assert http.post("/step", json={"action": {"code": code}}).json()["observation"]["exit_code"] == 0
        read = http.get("/files/copy")
        assert (read.content, read.headers["content-type"]) == (content[::-1], "application/octet-stream")
        assert http.get("/files").json()["files"] == {"copy": 256, "data/every byte.bin": 256}
        assert_refused(http.get("/files/missing"), "NOT_FOUND")
        assert_refused(http.get("/files/data"), "VALIDATION_ERROR")
        http.post("/reset", json={"seed": 0})
        assert http.get("/files").json()["files"] == {}


@pytest.mark.parametrize("path", ESCAPES)
def test_a_path_that_leaves_the_workspace_is_refused(server: Running, path: str):
    with server.http(ID) as http:
        http.post("/reset", json={"seed": 0})
        for method in ("GET", "PUT"):
            escaped = quote(path, safe="").replace(".", "%2e")
            assert_refused(http.request(method, f"/files/{escaped}"), "VALIDATION_ERROR")


def test_links_are_not_followed(server: Running, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    tmp_path.chmod(0o777)
    with server.http(ID) as http:
        http.post("/reset", json={"seed": 0})
        links = {"file": tmp_path / "secret", "folder": tmp_path, "proc": "/proc/self/root/etc", "inner": "real"}
        code = f"import os\nos.mkdir('real')\nfor a, b in {[(a, str(b)) for a, b in links.items()]}: os.symlink(b, a)"
        assert http.post("/step", json={"action": {"code": code}}).json()["observation"]["stderr"] == ""
        for path in ("file", "folder/secret", "proc/passwd", "inner/new"):
            assert_refused(http.get(f"/files/{path}"), "VALIDATION_ERROR")
        for path in ("folder/secret", "folder/new", "proc/new", "inner/new"):
            assert_refused(http.put(f"/files/{path}", content=b"changed"), "VALIDATION_ERROR")
        assert http.put("/files/file", content=b"changed").status_code == 200  # replaces the link
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("secret", "secret")]


def test_an_upload_cannot_exceed_the_limits(server: Running):
    with server.http("Small-v0") as http:
        http.post("/reset", json={"seed": 0})
        assert http.put("/files/a", content=bytes(2**15)).status_code == 200
        assert_refused(http.put("/files/a", content=bytes(2**15 + 1)), "VALIDATION_ERROR")  # in total
        assert http.get("/files").json()["files"] == {"a": 2**15}
        http.post("/step", json={"action": {"code": "open('b', 'wb').write(bytes(2**15))"}})
        assert_refused(http.put("/files/c", content=bytes(2**14)), "VALIDATION_ERROR")  # the disk is full
        assert set(http.get("/files").json()["files"]) == {"a", "b"}
        assert_refused(http.put("/files/a", content=bytes(2**21)), "TOO_LARGE")


@pytest.mark.slow
def test_the_number_of_uploads_is_limited(server: Running):
    with server.http("Small-v0") as http:
        http.post("/reset", json={"seed": 0})
        for number in range(MAX_UPLOADS):
            http.put("/files/a", content=str(number).encode())
        assert_refused(http.put("/files/a", content=b""), "VALIDATION_ERROR")
        assert http.get("/files/a").content == b"999"


def test_forks_snapshots_and_resumed_sessions_have_the_uploads(server: Running):
    with Client(f"{server.url}/envs/{ID}") as client:
        client.reset(seed=0)
        client.write_file("a.txt", b"one")
        snapshot = client.snapshot()
        client.step({"code": "x = open('a.txt').read()"})
        client.write_file("a.txt", b"two")
        with client.fork() as now, client.fork(snapshot) as before, client.fork(step=1) as stepped:
            assert [each.read_file("a.txt") for each in (now, before, stepped)] == [b"two", b"one", b"one"]
            assert stepped.step({"code": "print(x)"}).observation.stdout == "one\n"
        [row] = [row for row in client.history()["steps"] if "action" in row]
        assert client.history()["steps"] == [{"file": "a.txt"}, row, {"file": "a.txt"}]
        client.restore(snapshot)
        assert (client.files(), client.read_file("a.txt")) == ({"a.txt": 3}, b"one")


def test_uploads_survive_the_death_of_the_server_and_of_the_interpreter(tmp_path: Path):
    with ExitStack() as started:
        servers = Servers(tmp_path, started, ID, log_size=LOG_SIZE)
        with servers.now.http(ID) as http:
            id = http.post("/reset", json={"seed": 0}).json()["session_id"]
            http.put("/files/module.py", content=b"value = 7")
            http.post("/step", json={"action": {"code": "import os; open('lost', 'w'); os._exit(1)"}})
            http.put("/files/b.txt", content=b"b")
            http.post("/step", json={"action": {"code": "open('kept', 'w').close()"}})
        servers.crash()
        with servers.now.http(ID, headers={"X-Session-Id": id}) as http:
            assert http.get("/files").json()["files"] == {"b.txt": 1, "kept": 0, "module.py": 9}
            step = http.post("/step", json={"action": {"code": "import module; print(module.value)"}})
            assert step.json()["observation"]["stdout"] == "7\n"


def test_the_async_client_has_the_same_methods(server: Running):
    async def use() -> tuple[dict[str, int], bytes]:
        async with AsyncClient(f"{server.url}/envs/{ID}") as client:
            await client.reset(seed=0)
            await client.write_file("a/b", b"\0\xff")
            return await client.files(), await client.read_file("a/b")

    assert asyncio.run(use()) == ({"a/b": 2}, b"\0\xff")


def test_client_errors_name_the_reason(server: Running):
    with Client(f"{server.url}/envs/{ID}") as client:
        client.reset(seed=0)
        with pytest.raises(ServerError, match=r"'missing'.*a file of the workspace"):
            client.read_file("missing")
        with pytest.raises(ValidationError, match="relative path"):
            client.write_file("../x", b"")


@pytest.mark.parametrize("id", ["Echo-v0", "GridWorld-v0"])
def test_an_environment_without_a_workspace_says_so(server: Running, id: str):
    with Client(f"{server.url}/envs/{id}") as client:
        client.reset(seed=0)
        for request in (client.files, lambda: client.read_file("a"), lambda: client.write_file("a", b"")):
            with pytest.raises(StateError, match="has no workspace"):
                request()


def test_tier_b_says_that_it_has_no_workspace():
    reason = unavailable_reason("B")
    if reason is not None:
        pytest.skip(reason)
    env = Coding(tier="B")
    own = {"B-v0": ServedEnvironment("B-v0", env, env.default_params(), "Tier B.")}
    with running(own=own) as server, Client(f"{server.url}/envs/B-v0") as client:
        client.reset(seed=0)
        with pytest.raises(StateError, match="tier B has no workspace"):
            client.write_file("a", b"")


def test_deep_folders_and_odd_names_are_listed_safely(server: Running):
    with server.http(ID) as http:
        http.post("/reset", json={"seed": 0})
        code = "import os\nopen(b'\\xff.txt', 'w').close()"
        code += "\nfor _ in range(300): os.mkdir('d'); os.chdir('d')\nopen('x', 'w')"
        http.post("/step", json={"action": {"code": code}})
        assert http.get("/files").json()["files"] == {"\\xff.txt": 0}
