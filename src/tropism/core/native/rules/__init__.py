"""The rules, by family; importing them registers them."""

from tropism.core.native.rules import control, elementwise, functions, indexing, reductions, shapes

__all__ = ["control", "elementwise", "functions", "indexing", "reductions", "shapes"]
