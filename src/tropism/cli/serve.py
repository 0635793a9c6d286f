"""Commands that serve: serve, mcp."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tropism.cli.terminal import Arguments, Ids, Params, id_of, pair

Processes = Annotated[
    bool,
    typer.Option(
        "--processes",
        help="Each session of a host environment that blocks in a process of its own: a crash in native code ends "
        "that process, not the server. Costs a fork at each reset, a pipe at each step, and memory.",
    ),
]


class Level(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Durability(StrEnum):
    """What an acknowledged step survives."""

    off = "off"
    process = "process"
    power = "power"


def serve(
    ids: Ids = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        list[str] | None,
        typer.Option(envvar="TROPISM_TOKEN", help="What callers must send as Bearer token; repeatable, one for each."),
    ] = None,
    max_sessions: Annotated[int, typer.Option(help="Sessions open at once.", min=1)] = 10_000,
    max_sessions_per_token: Annotated[int, typer.Option(help="Sessions open at once, of one token.", min=1)] = 10_000,
    max_sockets: Annotated[
        int, typer.Option(help="WebSockets open at once, with a session or without.", min=1)
    ] = 20_000,
    idle_timeout: Annotated[
        float, typer.Option(help="Seconds until an idle session is put away; it can be resumed.")
    ] = 3600,
    max_body: Annotated[int, typer.Option(help="Largest request, in bytes.", min=1)] = 2**20,
    allow_host: Annotated[list[str] | None, typer.Option(help="A name this server is called by; repeatable.")] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web page's origin that may call; repeatable.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Record every session into DIR/ID, before it is answered.")
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where sessions are kept, so that they go on after a crash or a restart. Without it: a file for this "
            "address in the state folder ($XDG_STATE_HOME/tropism, or ~/.local/state/tropism); with --port 0, none.",
        ),
    ] = None,
    durability: Annotated[
        Durability | None,
        typer.Option(
            help="What a step that was answered survives. process (the default): the end of any process, kill -9 too. "
            "power: also that of the machine; each answer waits for the disk, together with those of other sessions. "
            "off: nothing; sessions are kept in memory.",
            show_default=False,
        ),
    ] = None,
    processes: Processes = False,
    param: Params = None,
    arg: Arguments = None,
    log_level: Annotated[Level, typer.Option(help="What is logged, as JSON lines on standard error.")] = Level.warning,
) -> None:
    """Serve environments over HTTP, WebSocket and MCP; the first one answers at / too.

    Example: tropism serve Echo-v0 ConnectFour-v0 --port 8000
    Example: tropism serve ConnectFour-v0 --arg "opponent=minimax(3)"
    Example: tropism serve Echo-v0 --journal sessions.journal --durability power
    """
    from tropism.serve.app import App
    from tropism.serve.server import log_to_stderr, run, unavailable_environments
    from tropism.serve.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        tokens=tuple(token or ()),
        max_sessions=max_sessions,
        max_sessions_per_token=max_sessions_per_token,
        max_sockets=max_sockets,
        idle_timeout=idle_timeout,
        max_body=max_body,
        allowed_hosts=tuple(allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
        processes=processes,
    )
    log_to_stderr(log_level.value)
    environments = _chosen(ids, param, arg)

    def ready(url: str) -> None:
        some = "1 environment" if len(environments) == 1 else f"{len(environments)} environments"
        kept = "" if store is None else f"; sessions are kept in {store.path}"
        print(f"serving {some} at {url} (open it in a browser; Ctrl-C stops){kept}", flush=True)

    store = _journal(journal, durability, settings)
    recordings = None if record is None else _recordings(record, environments.values())
    run(App(environments, settings, store, unavailable_environments(ids or ()), recordings), ready)


def _journal(path: Path | None, durability: Durability | None, settings: Any) -> Any:
    """The journal that was asked for; None where sessions are kept in memory."""
    from tropism.errors import ValidationError
    from tropism.serve.storage.journal import Journal, default_path

    if durability is Durability.off:
        if path is not None:
            raise ValidationError("journal", str(path), "none with --durability off, which keeps sessions in memory")
        return None
    if path is None and settings.port == 0:
        if durability is not None:
            expected = "--journal FILE beside it: with --port 0 no other server would find the sessions of this one"
            raise ValidationError("durability", durability.value, expected)
        return None
    kind = (durability or Durability.process).value
    return Journal(path or default_path(settings.host, settings.port), kind)


def _chosen(ids: Ids, param: Params, arg: Arguments) -> dict[str, Any]:
    """The environments to serve, by what was said on the command line."""
    from tropism.serve.server import load_environments

    params = dict(pair("--param", text) for text in param or [])
    return load_environments(
        [id_of(target) for target in ids or ()], params, **dict(pair("--arg", text) for text in arg or [])
    )


def _recordings(folder: Path, environments: Iterable[Any]) -> Any:
    from tropism.errors import require_extra

    require_extra("record", "--record", "msgspec", "pyarrow")
    from tropism.serve.recordings.writer import RecordingWriter

    return RecordingWriter(folder, environments)


def mcp(ids: Ids = None, processes: Processes = False, param: Params = None, arg: Arguments = None) -> None:
    """Speak MCP on standard input and output, for agents that start their own tools.

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
    asyncio.run(serve_stdio(App(_chosen(ids, param, arg), Settings(processes=processes)).tools))
