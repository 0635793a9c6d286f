"""Concentration fields, one file each."""
