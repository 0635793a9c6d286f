"""A browser for the tests of the page; each test file starts its own server."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from tests.serve.page.browser import browsing, visiting
from tests.serve.running import Running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as started:
        yield started


@pytest.fixture
def page(browser: Browser, server: Running) -> Iterator[Page]:
    with visiting(browser, server) as tab:
        yield tab
