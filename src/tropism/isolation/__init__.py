"""Host environments whose episodes live in processes of their own."""

from tropism.isolation.environment import Apart, apart

__all__ = ["Apart", "apart"]
