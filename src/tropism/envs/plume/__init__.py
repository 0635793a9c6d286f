"""Odour-plume navigation: the environment, its parts and its registered tasks."""
