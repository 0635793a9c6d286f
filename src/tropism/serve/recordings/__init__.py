"""Recordings made by the server."""
