"""What a check found: one result for each law, as values and as plain text."""

from dataclasses import dataclass
from textwrap import indent
from typing import Literal

Status = Literal["passed", "warned", "failed", "skipped"]


@dataclass(frozen=True)
class Result:
    """One law and how the environment stands to it; `place` is where it was broken, such as "step"."""

    law: str
    statement: str
    status: Status
    place: str = ""
    message: str = ""


@dataclass(frozen=True)
class Report:
    """The results in the order the laws were checked; `str(report)` is a table with the examples below it."""

    subject: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether no law is broken; a warning breaks none."""
        return not self.failed

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if result.status == "failed"]

    @property
    def warned(self) -> list[Result]:
        return [result for result in self.results if result.status == "warned"]

    def raise_if_failed(self) -> None:
        """Raise AssertionError with the whole report unless every law is kept."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        width = max((len(result.law) for result in self.results), default=0)
        lines = [f"{result.status:<7}  {result.law:<{width}}  {_remark(result)}" for result in self.results]
        verdict = "keeps the law" if self.ok else f"breaks {len(self.failed)} of {len(self.results)} laws"
        examples = [indent(result.message, "  ") for result in (*self.failed, *self.warned)]
        return "\n".join([f"{self.subject} {verdict}", "", *lines, *([""] if examples else []), *examples])


def _remark(result: Result) -> str:
    return f"{result.statement} ({result.message})" if result.status == "skipped" else result.statement
