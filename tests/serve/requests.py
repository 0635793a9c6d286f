"""Requests that several tests send."""

from typing import Any

TOKENS = ("first-token", "second-token")


def act(action: int, **fields: Any) -> dict[str, Any]:
    return {"action": {"value": action}, **fields}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
