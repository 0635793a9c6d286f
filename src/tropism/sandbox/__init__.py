"""Runs untrusted Python in an isolated child process, and refuses to where it cannot isolate it."""
