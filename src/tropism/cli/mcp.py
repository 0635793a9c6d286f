"""The command mcp."""

from tropism.cli.serve import ShownInfo, served_environments
from tropism.cli.terminal import Arguments, Ids, Params, Processes


def mcp(
    ids: Ids = None,
    info: ShownInfo = "public",
    processes: Processes = False,
    param: Params = None,
    arg: Arguments = None,
) -> None:
    """Serve MCP on standard input and output, for agents that start their tool servers themselves.

    Example: tropism mcp ConnectFour-v0
    Example: tropism mcp ConnectFour-v0 --arg "opponent=minimax(3)"
    """
    import asyncio

    from tropism.serve.app import App
    from tropism.serve.http.auth import ANONYMOUS
    from tropism.serve.server import log_to_stderr
    from tropism.serve.settings import Settings
    from tropism.serve.tools.mcp import serve_stdio
    from tropism.serve.tools.tools import SessionTools

    log_to_stderr("warning")
    app = App(served_environments(ids, param, arg), Settings(processes=processes, info=info))
    asyncio.run(serve_stdio(SessionTools(app.sessions, app.environments, ANONYMOUS)))
