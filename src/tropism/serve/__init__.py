"""The server: HTTP, WebSocket and MCP over the same sessions."""
