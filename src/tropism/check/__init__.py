"""The conformance suite: checks an environment against every law and reports."""

from tropism.check.checker import check_environment
from tropism.check.report import Report, Result

__all__ = ["Report", "Result", "check_environment"]
