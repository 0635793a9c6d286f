"""The server: HTTP, WebSocket and MCP over the same sessions."""

from tropism.errors import require_extra

require_extra("serve", "tropism.serve", "msgspec", "uvicorn", "websockets")
