"""The ids derived from a session's id, each with fewer rights; the session's id cannot be computed from them."""

from base64 import urlsafe_b64encode
from hashlib import blake2b

WATCH_ID_BYTES, AGENT_ID_BYTES = 9, 18


def watch_id(session_id: str) -> str:
    """An id that permits inspecting and forking the session, but not stepping it."""
    return urlsafe_b64encode(blake2b(session_id.encode(), digest_size=WATCH_ID_BYTES).digest()).decode()


def agent_id(session_id: str) -> str:
    """An id that permits acting in the session, and nothing else."""
    digest = blake2b(session_id.encode(), digest_size=AGENT_ID_BYTES, person=b"agent").digest()
    return urlsafe_b64encode(digest).decode()


def all_ids(session_id: str) -> dict[str, str]:
    """The ids in the reply to a reset or a fork."""
    return {"session_id": session_id, "view": watch_id(session_id), "agent_id": agent_id(session_id)}
