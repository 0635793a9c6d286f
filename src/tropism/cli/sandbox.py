"""The command sandbox doctor."""

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tropism.cli.terminal import AsJson, console, print_json, progress_bar
from tropism.errors import ValidationError


def examine_sandbox(
    tier: Annotated[str | None, typer.Option(help="A or B; by default the first that is available.")] = None,
    as_json: AsJson = False,
) -> None:
    """Attack the sandbox of Coding-v0 on this machine; the exit code is 1 if an attack succeeds.

    Example: tropism sandbox doctor
    """
    from tropism.sandbox.doctor import examine
    from tropism.sandbox.pool import TIERS

    chosen: list[Any] = [known for known in TIERS if tier is None or tier == known]
    if not chosen:
        raise ValidationError("--tier", tier, f"one of {', '.join(TIERS)}")
    with progress_bar() as bar:
        task = bar.add_task("attacking the sandbox", total=None)
        report = examine(chosen, progress=lambda done, total: bar.update(task, completed=done, total=total))
    rows = [{"attack": each.attack.name, "got through": each.succeeded} for each in report.outcomes]
    if as_json:
        summary = {"tier": report.tier, "refusals": report.refusals, "reason": report.reason}
        print_json({**summary, "attacks": rows, "cannot block": report.cannot_block})
    else:
        _show_report(report, rows)
    raise typer.Exit(0 if report.ok else 1)


def _show_report(report: Any, rows: list[dict[str, Any]]) -> None:
    table = Table("attack", "outcome")
    for row in rows:
        table.add_row(row["attack"], "[red]got through[/]" if row["got through"] else "blocked")
    if rows:
        console.print(table)
    for refusal in report.refusals:
        console.print(f"Unavailable: {escape(refusal)}", soft_wrap=True)
    if report.tier is not None:
        through = sum(row["got through"] for row in rows)
        console.print(f"Tier {report.tier}: {len(rows) - through} of {len(rows)} attacks were blocked.")
        console.print("This tier cannot block:")
        for line in report.cannot_block:
            console.print(f"- {line}", soft_wrap=True)
    if report.reason is not None:
        console.print(f"[red]Coding-v0 is absent:[/] {escape(report.reason)}", soft_wrap=True)
