"""The command mcp."""

from tropism.cli.serve import served_environments
from tropism.cli.terminal import Arguments, Ids, Params, Processes


def mcp(ids: Ids = None, processes: Processes = False, param: Params = None, arg: Arguments = None) -> None:
    """Serve MCP on standard input and output, for agents that start their own tools.

    Example: tropism mcp ConnectFour-v0
    Example: tropism mcp ConnectFour-v0 --arg "opponent=minimax(3)"
    """
    import asyncio

    from tropism.errors import require_extra

    require_extra("mcp", "tropism mcp", "mcp")
    from tropism.serve.app import App
    from tropism.serve.server import log_to_stderr
    from tropism.serve.settings import Settings
    from tropism.serve.tools.mcp import serve_stdio

    log_to_stderr("warning")
    asyncio.run(serve_stdio(App(served_environments(ids, param, arg), Settings(processes=processes)).tools))
