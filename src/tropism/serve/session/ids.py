"""The ids derived from a session's id, each with fewer rights; the session's id cannot be computed from them."""

from base64 import urlsafe_b64encode
from hashlib import blake2b

WATCH_ID_BYTES, AGENT_ID_BYTES, AGENT_KEY_BYTES = 9, 18, 16


def watch_id(session_id: str) -> str:
    """An id that permits inspecting and forking the session, but not stepping it."""
    return urlsafe_b64encode(blake2b(session_id.encode(), digest_size=WATCH_ID_BYTES).digest()).decode()


def agent_id(session_id: str) -> str:
    """An id that permits acting in the session, and nothing else."""
    digest = blake2b(session_id.encode(), digest_size=AGENT_ID_BYTES, person=b"agent").digest()
    return urlsafe_b64encode(digest).decode()


def agent_key(agent_id: str) -> bytes:
    """A digest by which a journal can find the session of an agent."""
    return blake2b(agent_id.encode(), digest_size=AGENT_KEY_BYTES, person=b"key").digest()


def seal(session_id: str, agent_id: str) -> bytes:
    """The session's id, unreadable without the agent id, which no journal contains."""
    return _mask(session_id.encode(), agent_id)


def unseal(sealed_id: bytes, agent_id: str) -> str:
    return _mask(sealed_id, agent_id).decode()


def _mask(data: bytes, agent_id: str) -> bytes:
    """XOR with a pad that is used once, because each session has its own agent id."""
    pad = blake2b(agent_id.encode(), digest_size=len(data), person=b"seal").digest()
    return bytes(one ^ other for one, other in zip(data, pad, strict=True))


def all_ids(session_id: str) -> dict[str, str]:
    """The ids in the reply to a reset or a fork."""
    return {"session_id": session_id, "view": watch_id(session_id), "agent_id": agent_id(session_id)}
