"""One environment of a server: its JSON form, and how its sessions are created and run."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from jax import random

from tropism.core.environment import Environment
from tropism.core.native.choice import EngineName
from tropism.core.params import write_params
from tropism.core.registry import identify
from tropism.core.session.session import Session
from tropism.errors import DivergedError
from tropism.isolation import isolate
from tropism.serve.errors import EnvironmentExitError
from tropism.serve.session.json_form import JsonForm

LONGEST_INLINE = 1e-3  # seconds; a longer step runs in a thread, so as not to block other sessions
MAX_THREADS = 1024
WARM_UP_RUNS = 5
THREAD_NAME_PREFIX = "session"

T = TypeVar("T")


class ServedEnvironment:
    """Compiled in a thread when the first session is opened; `summary` is a one-line description."""

    def __init__(self, id: str, env: Environment, params: Any, summary: str, engine: EngineName = "auto"):
        self.id = id
        self.env = env
        self.params = params
        self.summary = summary
        self.engine: EngineName = engine
        self.inline = False
        self._ready = False
        self._lock = asyncio.Lock()

    def isolate(self) -> "ServedEnvironment":
        """The same with one process per session, if it runs blocking host code in this process."""
        traits = self.env.traits
        if traits.isolated or not traits.blocking:
            return self
        return ServedEnvironment(self.id, isolate(self.env), self.params, self.summary)

    @property
    def replayable(self) -> bool:
        """Whether an episode can be replayed from its seed and actions."""
        return self.env.traits.replayable and self.env.traits.seedable

    @property
    def resumable(self) -> bool:
        """Whether a session can be resumed from a snapshot."""
        return self.env.traits.replayable or self.env.traits.copyable

    @cached_property
    def max_sessions(self) -> int | None:
        """How many sessions fit into half of the machine's memory; None if they take none outside this process."""
        each = self.env.traits.session_memory
        return max(1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // each) if each else None

    @cached_property
    def variant(self) -> str:
        """Its arguments and its params by name, as far as they are serialisable, as JSON."""
        return json.dumps({"environment": identify(self.env), "params": write_params(self._template.params)})

    def check_variant(self, variant: str) -> None:
        """Raise unless a session of this variant can continue here; params that it lacks must have their defaults."""
        if variant == self.variant:
            return
        stored, own = json.loads(variant), json.loads(self.variant)
        defaults = json.loads(json.dumps(write_params(self.env.default_params())))
        if stored["environment"] != own["environment"] or defaults | stored["params"] != own["params"]:
            message = f"this session was opened with other arguments or params of {self.id} than those served now"
            raise DivergedError("session", self.variant, "the same arguments and params", message)

    @cached_property
    def form(self) -> JsonForm:
        """The JSON form without private info."""
        return JsonForm(self._template, self.env.private_info)

    @cached_property
    def _full_form(self) -> JsonForm:
        return JsonForm(self._template) if self.env.private_info else self.form

    def form_for(self, shows_private_info: bool) -> JsonForm:
        return self._full_form if shows_private_info else self.form

    def read_action(self, data: dict[str, Any]) -> Any:
        """The action in a request: as JSON or, if the environment parses text, as text or with words for a value."""
        form = self.form
        if "text" in data and (text := form.action_text(data)) is not None:
            return self._template.parse(text)
        action = form.action(data)
        return self._template.parse(action) if type(action) is str and form.reads_words else action

    @cached_property
    def _template(self) -> Session:
        """Never reset; other sessions share its compiled program."""
        return self.new_session_on(self.engine)

    async def prepare_form(self, threads: ThreadPoolExecutor) -> None:
        """Build `form` in a thread: an environment's spaces may be slow to build."""
        await in_thread(threads, lambda: self.form)

    async def open(self, threads: ThreadPoolExecutor) -> Session:
        """A new session, before its first reset."""
        await self.prepare(threads)
        return self.new_session()

    def new_session(self) -> Session:
        """As `open`, without `prepare`: the first steps may have to compile."""
        return self._template.new_like()

    def new_session_on(self, engine: EngineName) -> Session:
        return Session(self.env, self.params, copies=False, engine=engine)

    async def prepare(self, threads: ThreadPoolExecutor) -> None:
        """Compile once, for all sessions."""
        if self._ready:
            return
        async with self._lock:
            if not self._ready:
                self.inline = await in_thread(threads, self._warm_up)
                self._ready = True

    def _warm_up(self) -> bool:
        """Compile reset and step; returns whether they are fast enough to run on the event loop."""
        form = self.form
        if not self.env.pure:
            return not self.env.traits.blocking
        session = self._template.new_like()
        session.reset(seed=0)
        times: list[tuple[float, float]] = []
        for number in range(WARM_UP_RUNS):  # the first runs compile; others may be slow on a busy machine
            action = session.action_space.coerce(session.action_space.sample(random.key(number)))
            start = time.perf_counter()
            form.reply(session, session.reset())
            middle = time.perf_counter()
            form.reply(session, session.step(action))
            times.append((middle - start, time.perf_counter() - middle))
        return all(min(each) < LONGEST_INLINE for each in zip(*times, strict=True))


async def in_thread(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, contain, function, *arguments)


def contain(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that runs code of an environment; what would end the server or hang its caller is converted."""
    try:
        return function(*arguments)
    except StopIteration as error:  # cannot be set on a future
        raise EnvironmentExitError from error
    except Exception:
        raise
    except BaseException as error:  # such as SystemExit
        raise EnvironmentExitError from error
