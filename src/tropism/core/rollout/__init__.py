"""Compiled rollouts and compiled whole episodes."""
