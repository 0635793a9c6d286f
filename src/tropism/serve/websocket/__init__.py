"""The WebSocket surface."""
