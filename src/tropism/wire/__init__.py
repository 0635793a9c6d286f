"""Messages and their encoding; imports no JAX."""
