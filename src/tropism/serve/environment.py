"""One environment as a server offers it: its served form, and how its sessions are made and run."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from jax import random

from tropism.core.environment import Environment
from tropism.core.session import Session
from tropism.serve.form import Form

LONGEST_INLINE = 1e-3  # seconds; a step that takes longer runs in a thread, so that other sessions go on
MOST_THREADS = 1024
THREADS = "session"  # how the names of their threads begin

T = TypeVar("T")


class ServedEnvironment:
    """Compiled when the first session is opened, in a thread; `summary` is one line for people."""

    def __init__(self, id: str, env: Environment, params: Any, summary: str):
        self.id = id
        self.env = env
        self.params = params
        self.summary = summary
        self.inline = False
        self._ready = False
        self._lock = asyncio.Lock()

    @cached_property
    def form(self) -> Form:
        return Form(self._first)

    @cached_property
    def _first(self) -> Session:
        """Never reset; the others share what it made."""
        return Session(self.env, self.params)

    async def open(self, threads: ThreadPoolExecutor) -> Session:
        """A session of its own, before its first reset."""
        if not self._ready:
            async with self._lock:
                if not self._ready:
                    self.inline = await asyncio.get_running_loop().run_in_executor(threads, self._warm_up)
                    self._ready = True
        return self._first.sibling()

    def _warm_up(self) -> bool:
        """Compile what sessions run, and say whether it is fast enough to run between other requests."""
        _ = self.form
        if not self.env.traced:
            return not self.env.blocking
        session = self._first.sibling()
        seconds = 0.0
        for number in range(3):  # the first step compiles, the next shows how long one takes
            timestep = session.reset(seed=number) if number == 0 or session.lifecycle.value != "ready" else None
            action = session.action_space.coerce(session.action_space.sample(random.key(number)))
            start = time.perf_counter()
            timestep = session.step(action)
            self.form.reply(session, timestep)
            seconds = time.perf_counter() - start
        return seconds < LONGEST_INLINE


async def in_thread(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
