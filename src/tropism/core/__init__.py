"""Environments, spaces, sessions and rollouts."""
