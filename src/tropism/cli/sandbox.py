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
    """Attack the sandboxes of Coding-v0 and Shell-v0 on this machine; the exit code is 1 if an attack succeeds.

    Example: tropism sandbox doctor
    """
    from tropism.sandbox.doctor import cached_report, examine, examine_shell
    from tropism.sandbox.pool import TIERS

    chosen: list[Any] = [known for known in TIERS if tier is None or tier == known]
    if not chosen:
        raise ValidationError("--tier", tier, f"one of {', '.join(TIERS)}")
    with progress_bar() as bar:
        task = bar.add_task("attacking the sandbox", total=None)
        report = examine(chosen, progress=lambda done, total: bar.update(task, completed=done, total=total))
        shell = examine_shell() if report.tier == "A" else None
        startup = cached_report(*chosen)
    if as_json:
        summary = {"tier": report.tier, "refusals": report.refusals, "reason": report.reason}
        if shell is not None:
            about = {"reason": shell.reason, "attacks": _rows(shell), "cannot block": shell.cannot_block}
            summary |= {"shell": about}
        at_startup = {"attacks": len(startup.outcomes), "seconds": round(startup.seconds, 2)}
        rest = {"attacks": _rows(report), "cannot block": report.cannot_block, "at start-up": at_startup}
        print_json({"shell": None, **summary, **rest})
    else:
        _show_report(report, shell)
        if startup.outcomes:
            console.print(f"The {len(startup.outcomes)} attacks at start-up took {startup.seconds:.1f} s.")
    raise typer.Exit(0 if report.ok and (shell is None or shell.ok or not shell.outcomes) else 1)


def _rows(report: Any) -> list[dict[str, Any]]:
    return [{"attack": each.attack.name, "got through": each.succeeded} for each in report.outcomes]


def _show_report(report: Any, shell: Any) -> None:
    table, rows = Table("attack", "outcome"), _rows(report)
    for row in [*rows, *([] if shell is None else _rows(shell))]:
        table.add_row(row["attack"], "[red]got through[/]" if row["got through"] else "blocked")
    if rows:
        console.print(table)
    for refusal in report.refusals:
        console.print(f"Unavailable: {escape(refusal)}", soft_wrap=True)
    if report.tier is not None:
        through = sum(row["got through"] for row in rows)
        console.print(f"Tier {report.tier}: {len(rows) - through} of {len(rows)} attacks were blocked.")
        _show_list("This tier cannot block:", report.cannot_block)
    if shell is not None and shell.reason is not None:
        console.print(f"[red]Shell-v0 is unavailable:[/] {escape(shell.reason)}", soft_wrap=True)
    elif shell is not None:
        console.print(f"Shell-v0: {len(shell.outcomes)} of {len(shell.outcomes)} attacks were blocked.")
        _show_list("Shell-v0 cannot block either:", shell.cannot_block)
    if report.reason is not None:
        console.print(f"[red]Coding-v0 is unavailable:[/] {escape(report.reason)}", soft_wrap=True)


def _show_list(title: str, lines: tuple[str, ...]) -> None:
    console.print(title)
    for line in lines:
        console.print(f"- {line}", soft_wrap=True)
