"""Runs each episode of a host environment in its own process."""

from tropism.isolation.environment import IsolatedEnvironment, isolate

__all__ = ["IsolatedEnvironment", "isolate"]
