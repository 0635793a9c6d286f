"""The report of a check: one result per law, as values and as plain text."""

from dataclasses import dataclass
from textwrap import indent
from typing import Literal

Status = Literal["passed", "warned", "failed", "skipped"]


@dataclass(frozen=True)
class Result:
    """One law and whether it holds; `place` is where it does not, such as "step"."""

    law: str
    statement: str
    status: Status
    place: str = ""
    message: str = ""


@dataclass(frozen=True)
class Report:
    """The results in the order of the laws. `str(report)` has the broken laws and their examples first,
    then a table of the checked laws, then the skipped ones."""

    subject: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether no law is broken; warnings are allowed."""
        return not self.failures

    @property
    def failures(self) -> list[Result]:
        return self._with("failed")

    @property
    def warnings(self) -> list[Result]:
        return self._with("warned")

    @property
    def skips(self) -> list[Result]:
        return self._with("skipped")

    def _with(self, status: Status) -> list[Result]:
        return [result for result in self.results if result.status == status]

    def raise_if_failed(self) -> None:
        """Raise AssertionError with the whole report if a law is broken."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        count, broken = len(self.results), len(self.failures)
        verdict = f"breaks {broken} of {count} {'law' if count == 1 else 'laws'}" if broken else "keeps all laws"
        examples = [f"{indent(result.message, '  ')}\n" for result in (*self.failures, *self.warnings)]
        checked = [*self.failures, *self.warnings, *self._with("passed")]
        width = max((len(result.law) for result in self.results), default=0)
        table = [f"{result.status:<7}  {result.law:<{width}}  {result.statement}" for result in checked]
        laws: dict[str, list[str]] = {}
        for result in self.skips:
            laws.setdefault(result.message, []).append(result.law)
        skips = [f"skipped  {', '.join(names)} ({reason})" for reason, names in laws.items()]
        return "\n".join([f"{self.subject} {verdict}", "", *examples, *table, *skips])
