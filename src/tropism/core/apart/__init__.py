"""Host environments whose episodes live in processes of their own."""

from tropism.core.apart.apart import Apart, apart

__all__ = ["Apart", "apart"]
