"""Live sessions: their registry, requests, forks and replay."""
