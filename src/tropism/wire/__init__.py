"""Messages that cross the wire; imports no JAX."""
