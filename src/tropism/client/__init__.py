"""Clients of a Tropism server; this room imports neither JAX nor Gymnasium."""
