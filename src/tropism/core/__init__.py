"""The law: environments, spaces, sessions and rollouts as pure functions."""
