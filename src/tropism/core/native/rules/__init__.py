"""The rules by family; importing them registers them."""

from tropism.core.native.rules import control, elementwise, functions, indexing, reductions, shapes

FAMILIES = (control, elementwise, functions, indexing, reductions, shapes)
