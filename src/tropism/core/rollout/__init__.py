"""Many steps in one compiled program: rollouts and whole episodes."""
