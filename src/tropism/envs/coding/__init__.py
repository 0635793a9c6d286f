"""The coding environment and its tasks."""
