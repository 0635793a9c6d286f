"""Tools for language models: MCP, and OpenEnv's JSON-RPC."""
