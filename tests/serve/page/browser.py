"""A real browser for the tests of the page: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.serve.running import Running

CHROMIUM = shutil.which("chromium")
# As root, which build machines are, Chromium cannot use its own sandbox.
ARGUMENTS = ["--no-sandbox"] if os.geteuid() == 0 else []
TIMEOUT = 30_000  # ms; drawing a picture may compile first, on a busy machine

expect.set_options(timeout=TIMEOUT)


@contextmanager
def browsing() -> Generator[Browser]:
    """Chromium, started once for many tests; without it the tests are skipped, except on a build machine."""
    if CHROMIUM is None:
        why = "chromium is not installed (apt-get install chromium)"
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def visiting(browser: Browser, server: Running, expected: str = "", **settings: Any) -> Generator[Page]:
    """A new tab; fails on unexpected errors and on requests to other servers."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **settings)
    page = context.new_page()
    page.set_default_timeout(TIMEOUT)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if _is_foreign(request.url, server) else None)
    yield page
    context.close()
    assert [text for text in wrong if not expected or expected not in text] == []


def _is_foreign(url: str, server: Running) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("blob", "data") and f"{parts.scheme}://{parts.netloc}" != server.url


def play(page: Page, server: Running, id: str, seed: int | None = None) -> str:
    """Open a session; returns its watch id."""
    page.goto(f"{server.url}/#/play/{id}")
    expect(page.locator("h1")).to_contain_text(id)
    if seed is not None:
        page.get_by_label("Seed", exact=True).first.fill(str(seed))
        page.keyboard.press("Enter")
        page.locator("h1").focus()
        expect(page.locator("#seed")).to_have_value(str(seed))
    return str(page.locator(".session").get_attribute("data-view"))


def expect_step(page: Page, step: int, last: int | None = None) -> None:
    expect(page.locator(".place")).to_have_text(f"{step} / {step if last is None else last}")


def history(server: Running, view: str) -> dict[str, Any]:
    with server.http() as caller:
        return caller.get(f"/sessions/{view}/history").json()


def sessions(server: Running) -> list[dict[str, Any]]:
    with server.http() as caller:
        return caller.get("/sessions").json()["sessions"]
