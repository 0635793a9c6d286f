"""The words for what a program printed and how it ended."""

from typing import Any


def describe_output(program: str, obs: Any) -> list[str]:
    """Lines for a language agent; `obs` has stdout, stderr, exit_code, timed_out and truncated_output."""
    ended = "was stopped: it took too long" if obs.timed_out else f"ended with {obs.exit_code}"
    streams = [f"{name}:\n{text}" for name, text in (("stdout", obs.stdout), ("stderr", obs.stderr)) if text]
    return [f"{program} {ended}.", *streams, *(["(Some output was cut off.)"] if obs.truncated_output else [])]
