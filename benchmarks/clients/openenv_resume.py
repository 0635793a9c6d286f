"""An official client whose base URL names its session: it continues its episode after a dropped socket and a restart.

Runs with OpenEnv.
"""

import asyncio
import json
import sys

from interruptions import Proxy, Server, session_url
from openenv.core.generic_client import GenericEnvClient
from openenv_client import MESSAGE, expect, verdict


async def dropped(url):
    async with (
        Proxy(int(url.rpartition(":")[2])) as proxy,
        GenericEnvClient(base_url=proxy.url + session_url(url, "Echo-v0")) as client,
    ):
        for count in (1, 2, 3):
            result = await client.step(MESSAGE)
            expect(result.observation["metadata"]["step"], count)
            proxy.cut()
            await asyncio.sleep(0.2)  # the client reads the end of its socket
        expect((await client.state())["step_count"], 3)


async def restarted(_url):
    with Server("Echo-v0") as server:
        client = GenericEnvClient(base_url=server.url + session_url(server.url, "Echo-v0"))
        await client.connect()
        expect((await client.step(MESSAGE)).observation["metadata"]["step"], 1)
        server.restart()
        await asyncio.sleep(0.2)
        expect((await client.step(MESSAGE)).observation["metadata"]["step"], 2)
        expect((await client.state())["step_count"], 2)
        await client.close()


CHECKS = {"GenericEnvClient, dropped socket": dropped, "GenericEnvClient, killed server": restarted}

if __name__ == "__main__":
    print(json.dumps({name: verdict(check, sys.argv[1]) for name, check in CHECKS.items()}))
