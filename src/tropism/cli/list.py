"""The command list."""

from rich.markup import escape
from rich.table import Table

from tropism.cli.terminal import AsJson, console, print_json


def list_environments(as_json: AsJson = False) -> None:
    """List all environments.

    Example: tropism list
    """
    from tropism.core.registry import registered, unavailable_reasons

    specs, missing = registered(), unavailable_reasons()
    if as_json:
        rows = [{"id": s.id, "traced": s.traced, "source": s.source, "summary": s.summary} for s in specs]
        print_json([*rows, *({"id": id, "absent": why} for id, why in missing.items())])
        return
    table = Table("id", "kind", "summary")
    for spec in specs:
        table.add_row(spec.id, "pure" if spec.traced else "host", spec.summary)
    for id, reason in missing.items():
        table.add_row(id, "[red]unavailable[/]", escape(reason))
    console.print(table)
