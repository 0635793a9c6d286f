"""Comparisons with other libraries, measured in turns; `python -m benchmarks` runs the quick ones."""
