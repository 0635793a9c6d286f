"""One environment as a server offers it: its served form, and how its sessions are made and run."""

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

from jax import random

from tropism.core.environment import Environment
from tropism.core.registry import identify
from tropism.core.session.session import Session
from tropism.core.session.snapshot import write_params
from tropism.isolation import isolate
from tropism.serve.session.json_form import Form

LONGEST_INLINE = 1e-3  # seconds; a step that takes longer runs in a thread, so that other sessions go on
MOST_THREADS = 1024
WARM_UPS = 5
VARIANT = 8  # bytes
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

    def apart(self) -> "ServedEnvironment":
        """The same with a process for each session, where this one's process could come to harm."""
        env = self.env
        if env.traced or env.isolated or not env.blocking:
            return self
        return ServedEnvironment(self.id, isolate(env), self.params, self.summary)

    @property
    def replayable(self) -> bool:
        """Whether an episode can be lived through again, from its seed and its actions."""
        return self.env.replayable and self.env.seedable

    @cached_property
    def variant(self) -> str:
        """A digest of its arguments and params, as far as they can be written down."""
        made = json.dumps([identify(self.env), write_params(self._first.params)], sort_keys=True)
        return blake2b(made.encode(), digest_size=VARIANT).hexdigest()

    @cached_property
    def form(self) -> Form:
        return Form(self._first)

    @cached_property
    def _first(self) -> Session:
        """Never reset; the others share what it made."""
        return Session(self.env, self.params, copies=False)

    async def described(self, threads: ThreadPoolExecutor) -> None:
        """Make the form where that delays nobody; to look at an environment's spaces may take a while."""
        await in_thread(threads, lambda: self.form)

    async def open(self, threads: ThreadPoolExecutor) -> Session:
        """A session of its own, before its first reset."""
        await self.prepare(threads)
        return self.fresh()

    def fresh(self) -> Session:
        """As `open`; where nobody prepared it, the first steps compile."""
        return self._first.new_like()

    async def prepare(self, threads: ThreadPoolExecutor) -> None:
        """Compile, once; from then on nothing that sessions do needs it."""
        if self._ready:
            return
        async with self._lock:
            if not self._ready:
                self.inline = await in_thread(threads, self._warm_up)
                self._ready = True

    def _warm_up(self) -> bool:
        """Compile what sessions run, and say whether it is fast enough to run between other requests."""
        form = self.form
        if not self.env.traced:
            return not self.env.blocking
        session = self._first.new_like()
        session.reset(seed=0)
        times: list[tuple[float, float]] = []
        for number in range(WARM_UPS):  # the first ones compile; a busy machine slows some
            action = session.action_space.coerce(session.action_space.sample(random.key(number)))
            start = time.perf_counter()
            form.reply(session, session.reset())
            middle = time.perf_counter()
            form.reply(session, session.step(action))
            times.append((middle - start, time.perf_counter() - middle))
        return all(min(each) < LONGEST_INLINE for each in zip(*times, strict=True))


async def in_thread(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
