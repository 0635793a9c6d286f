"""A row of the list of live sessions."""

import time
from typing import Any

from tropism.serve.session.json_form import session_state
from tropism.serve.session.live import LiveSession


def session_row(live: LiveSession) -> dict[str, Any]:
    return {
        "view": live.watch_id,  # not the id, which permits stepping
        "environment": live.environment.id,
        "lifecycle": live.session.lifecycle.value,
        "attached": live.sockets > 0,
        "total_reward": live.session.total_reward,
        "age": time.monotonic() - live.opened_at,
        "idle": time.monotonic() - live.used_at,
        **session_state(live.session),
    }
