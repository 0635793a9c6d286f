"""The law every environment keeps, as a report anyone can run."""

from tropism.core.check.checker import check_environment
from tropism.core.check.report import Report, Result

__all__ = ["Report", "Result", "check_environment"]
