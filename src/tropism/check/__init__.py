"""The law every environment keeps, as a report anyone can run."""

from tropism.check.checker import check_environment
from tropism.check.report import Report, Result

__all__ = ["Report", "Result", "check_environment"]
