"""OpenEnv's own clients as a load generator; runs in the virtual environment of OpenEnv.

`openenv_load.py URL async|sync SESSIONS` opens the sessions. For every line with a number of seconds on stdin, all
sessions step for that time, and the number of steps and the elapsed seconds are printed.
"""

import asyncio
import sys
import time

from openenv.core.generic_client import GenericEnvClient

ACTION = {"message": "hello"}


def check(result):
    if result.observation["echoed_message"] != "hello":
        raise AssertionError(f"a wrong echo: {result.observation}")


def report(steps, start):
    print(steps, time.perf_counter() - start, flush=True)


async def step_until(client, deadline):
    steps = 0
    while time.perf_counter() < deadline:
        check(await client.step(ACTION))
        steps += 1
    return steps


async def asynchronous(url, count):
    clients = [GenericEnvClient(base_url=url) for _ in range(count)]
    for client in clients:
        await client.connect()
        await client.reset()
    for line in sys.stdin:
        start = time.perf_counter()
        report(sum(await asyncio.gather(*(step_until(client, start + float(line)) for client in clients))), start)
    for client in clients:
        await client.close()


def synchronous(url):
    with GenericEnvClient(base_url=url).sync() as client:
        client.reset()
        for line in sys.stdin:
            steps, start = 0, time.perf_counter()
            while time.perf_counter() < start + float(line):
                check(client.step(ACTION))
                steps += 1
            report(steps, start)


if __name__ == "__main__":
    url, kind, count = sys.argv[1:]
    if kind == "async":
        asyncio.run(asynchronous(url, int(count)))
    else:
        synchronous(url)
