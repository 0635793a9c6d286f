"""Check a server with OpenEnv's own clients and validator; runs in the virtual environment of OpenEnv."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import requests
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

MESSAGE = {"message": "hello"}
ECHOED = {"echoed_message": "hello", "message_length": 5, "metadata": {"step": 1}}


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"expected {wanted!r}, found {found!r}")


def check_step(result):
    expect({name: result.observation[name] for name in ECHOED}, ECHOED)
    expect((result.reward, result.done), (0.5, False))


async def asynchronous(url):
    """Two clients at once, each with its own episode."""
    async with GenericEnvClient(base_url=url) as one, GenericEnvClient(base_url=url) as other:
        for client in (one, other):
            expect((await client.reset(seed=42, episode_id="ep-1")).done, False)
            check_step(await client.step(MESSAGE))
        await other.step(MESSAGE)
        expect([(await client.state())["step_count"] for client in (one, other)], [1, 2])
        expect((await one.state())["episode_id"], "ep-1")


def synchronous(url):
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset()
        check_step(client.step(MESSAGE))
        expect(client.state()["step_count"], 1)
        try:
            client.step({"message": 3})
        except RuntimeError as error:
            expect("VALIDATION_ERROR" in str(error), True)
        else:
            raise AssertionError("an invalid action was accepted")
        expect(client.state()["step_count"], 1)


async def tools(url):
    """MCPToolClient: reset on the socket, tools over JSON-RPC, in one session."""
    async with MCPToolClient(base_url=url) as client:
        expect((await client.reset(seed=1)).observation.metadata, {})
        expect([tool.name for tool in await client.list_tools()], ["echo_message"])
        reply = await client.call_tool("echo_message", message="hello")
        expect(reply["observation"]["echoed_message"], "hello")
        expect((await client.state()).step_count, 1)


def plain(url):
    """POST /reset, POST /step, GET /state with ten plain HTTP clients at once."""
    callers = [requests.Session() for _ in range(10)]
    for caller in callers:
        caller.post(f"{url}/reset", json={}).raise_for_status()
    for number, caller in enumerate(callers):
        for step in range(number):
            reply = caller.post(f"{url}/step", json={"action": MESSAGE}).json()
            expect((reply["observation"]["echoed_message"], reply["reward"]), ("hello", 0.5))
            expect(reply["metadata"], {"step": step + 1})
    expect([caller.get(f"{url}/state").json()["step_count"] for caller in callers], list(range(10)))


def validator(url):
    """All criteria of `openenv validate --url`."""
    command = [str(Path(sys.executable).with_name("openenv")), "validate", "--url", url]
    with TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    failed = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("FAIL")]
    if done.returncode or failed:
        raise AssertionError("; ".join(failed) or (done.stdout + done.stderr).strip()[-500:])


def verdict(check, url):
    try:
        asyncio.run(check(url)) if asyncio.iscoroutinefunction(check) else check(url)
    except Exception as error:  # noqa: BLE001 - any error is the result
        return f"{type(error).__name__}: {error}"
    return "ok"


CHECKS = {
    "GenericEnvClient, async": asynchronous,
    "GenericEnvClient, sync": synchronous,
    "MCPToolClient": tools,
    "requests.Session": plain,
    "openenv validate": validator,
}

if __name__ == "__main__":
    print(json.dumps({name: verdict(check, sys.argv[1]) for name, check in CHECKS.items()}))
