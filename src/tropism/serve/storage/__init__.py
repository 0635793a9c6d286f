"""Where sessions are stored: in memory, and in the durable journal."""
