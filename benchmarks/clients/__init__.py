"""Clients and trainers of other packages, each run in the virtual environment of its package."""
