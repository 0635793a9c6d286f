"""Requests that several tests send."""

import json
from typing import Any

import httpx

TOKENS = ("first-token", "second-token")


def act(action: int, **fields: Any) -> dict[str, Any]:
    return {"action": {"value": action}, **fields}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def call_tool(caller: httpx.Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool over MCP, or the error that it reports."""
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    result = caller.post("/mcp", json=body).json()["result"]
    return json.loads(result["content"][0]["text"])
