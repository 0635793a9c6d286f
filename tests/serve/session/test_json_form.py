"""The JSON form of a wrapped environment is that of the environment it wraps."""

from typing import Any

from tests.serve.running import running

from tropism import make, time_limit
from tropism.serve.session.environment import ServedEnvironment


def test_a_served_transform_keeps_the_message_types():
    env, params = make("ConnectFour-v0")
    limited = ServedEnvironment("Limited-v0", time_limit(env, 2), params, "At most two moves.")
    with running("ConnectFour-v0", own={"Limited-v0": limited}) as server:
        replies: list[dict[str, Any]] = []
        for id in ("ConnectFour-v0", "Limited-v0"):
            with server.http() as caller:
                caller.post(f"/envs/{id}/reset", json={"seed": 5}).raise_for_status()
                replies.append(caller.post(f"/envs/{id}/step", json={"action": {"column": 3}}).json()["observation"])
        assert replies[0] == replies[1]
        assert {"board", "winner", "legal_actions"} <= set(replies[1])
