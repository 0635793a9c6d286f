"""Compiled programs and the packed buffers they work on."""
