"""Limits on the bytes that sessions keep in memory and in the journal."""

import threading

from tropism.errors import ServerError


class StoredBytes:
    """The bytes of all live sessions of each owner: actions, options and uploads of their episodes, and snapshots."""

    def __init__(self, limit: int):
        self._limit = limit
        self._by_owner: dict[str, int] = {}
        self._lock = threading.Lock()  # sessions run in threads

    def check(self, owner: str, more: int) -> None:
        """Raise if the sessions of this owner may not have so many more."""
        if self._by_owner.get(owner, 0) + more > self._limit:
            raise ServerError("QUOTA_REACHED", f"the sessions of this token hold {self._limit} bytes; close one first")

    def add(self, owner: str, more: int) -> None:
        with self._lock:
            total = self._by_owner.get(owner, 0) + more
            if total:
                self._by_owner[owner] = total
            else:
                self._by_owner.pop(owner, None)
