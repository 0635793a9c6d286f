"""Fixtures for the tests of the plume's parts."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def untyped() -> Iterator[None]:
    """Without run-time type checks, as users run: the library's own refusals are what is tested."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
