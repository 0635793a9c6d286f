"""Shell: commands, time limits, files, forks, and a server that does not resume it after a crash."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from jax import random
from tests.serve.replies import assert_refused
from tests.serve.running import Running, Servers, running

from tropism import Session, StateError, ValidationError, make
from tropism.client import Client
from tropism.envs.shell import Shell
from tropism.serve.storage.sqlite import LOG_SIZE
from tropism.wire.messages.shell import ShellAction

REASON = Shell.unavailable_reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
ID = "Shell-v0"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ID) as started:
        yield started


def session(**arguments: object) -> Session:
    return Session(*make(ID, **arguments))


def test_files_persist_between_commands_until_the_reset():
    with session() as shell:
        shell.reset(seed=0)
        shell.step({"command": "echo hello > a; export x=1; mkdir d; cd d"})
        obs = shell.step(ShellAction(command="cat a; echo [$x]; pwd; exit 4")).obs
        assert (obs.stdout, obs.stderr, obs.exit_code, obs.timed_out) == ("hello\n[]\n/tmp\n", "", 4, False)
        shell.reset(seed=0)
        assert shell.step({"command": "ls"}).obs.stdout == ""


def test_an_action_may_ask_for_time_up_to_the_maximum():
    with session(timeout=0.5, max_timeout=30) as shell:
        shell.reset(seed=0)
        stopped = shell.step({"command": "sleep 1; echo late"}).obs
        assert (stopped.timed_out, stopped.exit_code) == (True, -9)
        assert shell.step({"command": "sleep 1; echo in time", "timeout": 30}).obs.stdout == "in time\n"
        for timeout in (31, 0, -1, float("nan"), "5"):
            with pytest.raises(ValidationError, match="timeout"):
                shell.step({"command": "true", "timeout": timeout})
        assert shell.action_space.sample(random.key(0)) in shell.action_space
        assert shell.step_count == 2
    with pytest.raises(ValidationError, match="max_timeout is 1; expected at least 10"):
        make(ID, max_timeout=1)


def test_the_seed_determines_random():
    with session() as one, session() as other:
        numbers = [(each.reset(seed=5), each.step({"command": "echo $RANDOM"}).obs.stdout)[1] for each in (one, other)]
        assert numbers[0] == numbers[1] != one.step({"command": "echo $RANDOM"}).obs.stdout


def test_forks_and_snapshots_copy_the_files():
    with session() as shell:
        shell.reset(seed=0)
        shell.write_file("src/a.txt", b"uploaded")
        shell.step({"command": "date +%N > time; chmod +x time; ln -s time link; git init -q ."})
        time = shell.read_file("time")
        for twin in (shell.fork(), Session.restore(shell.snapshot())):
            with twin:
                assert (twin.step_count, twin.timestep.obs) == (1, shell.timestep.obs)
                copied = twin.step({"command": "cat link src/a.txt; [ -x time ] && git status --short; rm link"}).obs
                assert copied.stdout == time.decode() + "uploaded?? link\n?? src/\n?? time\n"
        assert "link" in shell.step({"command": "ls"}).obs.stdout
        with pytest.raises(ValidationError, match="seed"):
            shell.fork(seed=3)


def test_the_episode_is_truncated_and_described():
    with session(max_steps=1) as shell:
        shell.reset(seed=0)
        end = shell.step(shell.parse("```bash\necho hi\n```"))
        assert (end.truncated, end.terminated, end.reward) == (True, False, 0.0)
        assert shell.describe().startswith("Command 1 ended with 0.\nstdout:\nhi\n")


def test_a_served_shell_is_forked_and_evicted_with_its_files(server: Running):
    with Client(f"{server.url}/envs/{ID}") as client:
        client.reset(seed=0)
        client.write_file("a", b"1")
        client.step({"command": "echo 2 >> a"})
        snapshot = client.snapshot()
        client.step({"command": "rm a"})
        with client.fork(snapshot) as before, client.fork() as now:
            assert before.step({"command": "cat a"}).observation.stdout == "12\n"
            assert now.files() == {}
            with pytest.raises(StateError, match="cannot be replayed"):
                now.fork(step=1)
        client.restore(snapshot)
        assert client.read_file("a") == b"12\n"
        sessions = server.app.sessions
        live = sessions._live[str(client.session_id)]  # pyright: ignore[reportPrivateUsage]
        live.sockets = 0
        asyncio.run_coroutine_threadsafe(sessions.evict(live), server.loop).result(30)
        with server.http(ID, headers={"X-Session-Id": str(client.session_id)}) as http:
            assert http.get("/files").json()["files"] == {"a": 3}


def test_after_a_crash_the_session_fails_loudly(tmp_path: Path):
    with ExitStack() as started:
        servers = Servers(tmp_path, started, ID, log_size=LOG_SIZE)
        with servers.now.http(ID) as http:
            id = http.post("/reset", json={"seed": 0}).json()["session_id"]
            http.post("/step", json={"action": {"command": "echo 1 > a"}})
        servers.crash()
        with servers.now.http(ID, headers={"X-Session-Id": id}) as http:
            refused = assert_refused(http.post("/step", json={"action": {"command": "cat a"}}), "SESSION_ERROR")
            assert "cannot be replayed" in refused["message"]
