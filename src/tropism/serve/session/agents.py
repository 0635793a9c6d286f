"""The sessions by agent id, also those that another worker opened."""

from tropism.serve.session import ids
from tropism.serve.storage.protocol import Claim, Journal

MAX_AGENT_IDS = 2**17  # of sessions that are open, or were evicted since the server started


class AgentIndex:
    """The ids of this server's sessions are in memory. The journal may have the others, sealed with the agent id."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self._session_ids: dict[str, str] = {}

    def publish(self, session_id: str, claim: Claim) -> None:
        """Let other workers find a session that is not stored yet."""
        agent_id = ids.agent_id(session_id)
        self._journal.add_alias(claim, ids.agent_key(agent_id), ids.seal(session_id, agent_id))

    def add(self, session_id: str) -> None:
        self._session_ids[ids.agent_id(session_id)] = session_id
        if len(self._session_ids) > MAX_AGENT_IDS:
            del self._session_ids[next(iter(self._session_ids))]

    def remove(self, session_id: str) -> None:
        self._session_ids.pop(ids.agent_id(session_id), None)

    async def find(self, agent_id: str) -> str | None:
        """The id of the session in which this agent may act."""
        if agent_id in self._session_ids:
            return self._session_ids[agent_id]
        sealed = await self._journal.find_alias(ids.agent_key(agent_id))
        return None if sealed is None else ids.unseal(sealed, agent_id)
