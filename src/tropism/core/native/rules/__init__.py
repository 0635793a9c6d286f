"""The rules by family; importing them registers them."""

from tropism.core.native.rules import arithmetic, control, elementwise, functions, indexing, reductions, shapes

FAMILIES = (arithmetic, control, elementwise, functions, indexing, reductions, shapes)
