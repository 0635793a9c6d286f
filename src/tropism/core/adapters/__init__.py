"""Adapters for class-based environments and for language agents."""
