"""The fused engine: a whole rollout as one kernel, for accelerators."""
