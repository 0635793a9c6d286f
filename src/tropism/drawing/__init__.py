"""Pure drawing code."""
