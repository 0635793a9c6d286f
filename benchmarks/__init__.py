"""Comparisons with other libraries, measured side by side; `python -m benchmarks` runs the quick ones."""
