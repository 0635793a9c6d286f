"""Compiles the traced step and reset of a pure environment to machine code, without XLA's cost per call."""
