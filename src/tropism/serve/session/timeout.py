"""A step with a timeout."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from tropism.core.session.session import Session
from tropism.errors import ServerError
from tropism.serve.errors import late_step_error
from tropism.serve.session.live import LiveSession
from tropism.serve.session.requests import ANYWHERE, EpisodePosition

LONGEST_WAIT = 86_400.0  # seconds


async def step_within(
    live: LiveSession,
    seconds: float,
    data: dict[str, Any],
    request_id: str | None,
    position: EpisodePosition = ANYWHERE,
) -> bytes:
    """A step that is rolled back if it takes longer; if the environment cannot be rolled back, it may take longer."""
    environment = live.environment
    can_roll_back = environment.env.traits.replayable
    if environment.inline or not can_roll_back or live.session.lifecycle.value != "ready":
        return await live.perform("step", data, request_id, position)
    if live.log.must_record("step"):
        await live.record()
    perform = partial(live.perform_once, "step", data, request_id, position)
    return await asyncio.shield(asyncio.ensure_future(_perform_within(live, seconds, perform)))


async def _perform_within(live: LiveSession, seconds: float, perform: Callable[[], bytes]) -> bytes:
    async with live.lock.lock():
        if live.is_damaged:
            await live.in_thread(live.repair)
        restore, stepping, steps_written = live.session.restore_point(), live.session, live.steps_written
        step = asyncio.ensure_future(live.in_thread(_perform_if_current, live, stepping, perform))
        await asyncio.wait({step}, timeout=min(seconds, LONGEST_WAIT))
        with live.write_lock:
            in_time = step.done() or live.steps_written != steps_written or live.log.ticket.error is not None
            if not in_time:
                live.session = stepping.new_like()
        if in_time:
            reply = await step
            await live.wait_durable()
            return reply
        step.add_done_callback(lambda done: done.cancelled() or (done.exception(), stepping.close()))
        if live.environment.env.traits.interruptible:
            await live.in_thread(stepping.close)
        live.session = await live.in_thread(restore)
    raise ServerError("TIMEOUT", f"the step took longer than {seconds} s and was not applied")


def _perform_if_current(live: LiveSession, session: Session, perform: Callable[[], bytes]) -> bytes:
    """Step `session`, unless a timeout replaced it while the step waited for a thread."""
    if session is not live.session:
        raise late_step_error()
    return perform()
