"""The command serve."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tropism.cli.terminal import Arguments, EngineName, EngineOption, Ids, Params, Processes, id_of, parse_pairs

Level = Literal["debug", "info", "warning", "error"]
Durability = Literal["off", "process", "power"]  # failures that an acknowledged step survives
POSTGRES = ("postgresql://", "postgres://")
ShownInfo = Annotated[
    Literal["public", "all"],
    typer.Option(help="all: also send the info that an environment declares private, such as the source of a plume."),
]


def serve(
    ids: Ids = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; a token is required unless it is loopback.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8000,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path below which a proxy serves this server, such as /tropism.")
    ] = "",
    token: Annotated[
        list[str] | None,
        typer.Option(envvar="TROPISM_TOKEN", help="Bearer token that clients must send; repeatable, one per client."),
    ] = None,
    admin_token: Annotated[
        str | None,
        typer.Option(
            envvar="TROPISM_ADMIN_TOKEN",
            help="Bearer token required for forks, snapshots, restores, histories and private info of all sessions.",
        ),
    ] = None,
    info: ShownInfo = "public",
    max_sessions: Annotated[int, typer.Option(help="Maximum open sessions.", min=1)] = 10_000,
    max_sessions_per_token: Annotated[int, typer.Option(help="Maximum open sessions per token.", min=1)] = 10_000,
    max_sockets: Annotated[
        int, typer.Option(help="Maximum open WebSockets, with or without a session.", min=1)
    ] = 20_000,
    idle_timeout: Annotated[
        float, typer.Option(help="Seconds until an idle session is evicted from memory; it can still be resumed.")
    ] = 3600,
    max_body: Annotated[int, typer.Option(help="Maximum request size in bytes.", min=1)] = 2**20,
    allow_host: Annotated[list[str] | None, typer.Option(help="A host name that requests may use; repeatable.")] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="An origin whose web pages may send requests; repeatable.")
    ] = None,
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Record every session into DIR/ID.")] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            envvar="TROPISM_JOURNAL",
            help="File that stores sessions, so that they survive a crash or restart, or the postgresql:// address of "
            "a database, which several servers can share. Default: a file for this address in "
            "$XDG_STATE_HOME/tropism or ~/.local/state/tropism; none with --port 0.",
        ),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            help="With Postgres: seconds after its last step until another server may take a session over. Default 30.",
            min=1,
            show_default=False,
        ),
    ] = None,
    durability: Annotated[
        Durability | None,
        typer.Option(
            help="Failures that an acknowledged step survives. process (the default): the end of any process, even by "
            "kill -9. power: also a power failure; replies wait for an fsync, shared by concurrent sessions. "
            "off: none; sessions are kept in memory. With Postgres, process and power both wait for its fsync.",
            show_default=False,
        ),
    ] = None,
    processes: Processes = False,
    engine: EngineOption = "auto",
    param: Params = None,
    arg: Arguments = None,
    log_level: Annotated[Level, typer.Option(help="Level of the JSON log lines on standard error.")] = "warning",
) -> None:
    """Serve environments over HTTP, WebSocket and MCP; the first one is also served at /.

    Example: tropism serve Echo-v0 ConnectFour-v0 --port 8000
    Example: tropism serve ConnectFour-v0 --arg "opponent=minimax(3)"
    Example: tropism serve Coding-v0 Echo-v0 --arg Coding-v0:wall=10
    Example: tropism serve Echo-v0 --journal sessions.journal --durability power
    """
    from tropism.serve.app import App
    from tropism.serve.server import log_to_stderr, run, unavailable_environments
    from tropism.serve.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        root_path=root_path,
        tokens=tuple(token or ()),
        admin_token=admin_token,
        info=info,
        max_sessions=max_sessions,
        max_sessions_per_token=max_sessions_per_token,
        max_sockets=max_sockets,
        idle_timeout=idle_timeout,
        max_body=max_body,
        allowed_hosts=tuple(allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
        processes=processes,
    )
    log_to_stderr(log_level)
    environments = served_environments(ids, param, arg, engine)

    def ready(url: str) -> None:
        count = "1 environment" if len(environments) == 1 else f"{len(environments)} environments"
        stored = "" if stored_in is None else f"; sessions are stored in {stored_in.location}"
        print(f"serving {count} at {url} (open it in a browser; Ctrl-C stops){stored}", flush=True)

    stored_in = _journal(journal, durability, lease, settings)
    recordings = None if record is None else _recordings(record, environments.values())
    run(App(environments, settings, stored_in, unavailable_environments(ids or ()), recordings), ready)


def _journal(journal: str | None, durability: Durability | None, lease: float | None, settings: Any) -> Any:
    """The requested journal; None if sessions are kept in memory."""
    from tropism.errors import ValidationError, require_extra
    from tropism.serve.storage.schema import default_path
    from tropism.serve.storage.sqlite import SqliteJournal

    if durability == "off":
        if journal is not None:
            raise ValidationError("journal", journal, "none with --durability off, which keeps sessions in memory")
        return None
    if journal is not None and journal.startswith(POSTGRES):
        require_extra("postgres", "a journal in Postgres", "psycopg")
        from tropism.serve.storage.postgres import PostgresJournal

        return PostgresJournal(journal) if lease is None else PostgresJournal(journal, lease_seconds=lease)
    if lease is not None:
        raise ValidationError("lease", lease, "none: only one server can use the file; a lease is for postgresql://…")
    if journal is None and settings.port == 0:
        if durability is not None:
            expected = "--journal FILE as well: with --port 0 a restarted server would not find these sessions"
            raise ValidationError("durability", durability, expected)
        return None
    return SqliteJournal(journal or default_path(settings.host, settings.port), durability or "process")


def served_environments(ids: Ids, param: Params, arg: Arguments, engine: EngineName = "auto") -> dict[str, Any]:
    """The environments to serve, by id, from the command-line arguments."""
    from tropism.serve.server import load_environments

    targets = [id_of(target) for target in ids or ()]
    return load_environments(targets, parse_pairs("--param", param), engine, **parse_pairs("--arg", arg))


def _recordings(folder: Path, environments: Iterable[Any]) -> Any:
    from tropism.errors import require_extra

    require_extra("record", "--record", "msgspec", "pyarrow")
    from tropism.serve.recordings.writer import RecordingWriter

    return RecordingWriter(folder, environments)
