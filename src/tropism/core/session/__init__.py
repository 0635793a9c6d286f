"""A session: one environment, its episode, and the engine that steps it."""
