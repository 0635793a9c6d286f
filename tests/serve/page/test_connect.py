"""The Connect panel in a real browser: a snippet for each client, on a desktop and on a phone."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.serve.page.browser import play, visiting
from tests.serve.running import Running, running

CLIENTS = ("Python", "curl", "OpenEnv", "MCP")
TOKEN = "open-sesame"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Echo-v0", "GridWorld-v0") as started:
        yield started


def snippet(page: Page, client: str) -> str:
    page.get_by_role("tab", name=client, exact=True).click()
    expect(page.get_by_role("tab", selected=True)).to_have_text(client)
    return page.get_by_role("tabpanel").inner_text()


@pytest.mark.slow
def test_each_client_has_a_snippet_and_those_that_run_here_run(page: Page, server: Running):
    page.goto(f"{server.url}/docs#/GridWorld-v0")
    url = f"{server.url}/envs/GridWorld-v0"
    found = {client: snippet(page, client) for client in CLIENTS}
    assert all(url in found[client] for client in ("Python", "curl", "OpenEnv"))
    assert json.loads(found["MCP"])["mcpServers"]["tropism"]["url"] == f"{server.url}/mcp"
    done = subprocess.run([sys.executable, "-c", found["Python"]], capture_output=True, text=True, check=False)
    assert "row" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_panel_fits_a_phone_and_a_session(page: Page, server: Running):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/docs#/Echo-v0")
    expect(page.get_by_role("heading", name="Connect")).to_be_visible()
    for client in CLIENTS:
        snippet(page, client)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    play(page, server, "GridWorld-v0")
    page.locator("summary", has_text="Connect").click()
    assert "/envs/GridWorld-v0" in snippet(page, "Python")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_a_snippet_reads_the_token_from_the_environment(browser: Browser):
    with running("Echo-v0", tokens=(TOKEN,)) as server, visiting(browser, server, expected="401") as page:
        page.goto(f"{server.url}/docs")
        page.get_by_label("Token", exact=True).fill(TOKEN)
        page.get_by_role("button", name="Enter").click()
        for client in CLIENTS:
            text = snippet(page, client)
            assert "TROPISM_TOKEN" in text
            assert TOKEN not in text


@pytest.mark.slow
def test_the_page_works_below_a_root_path(browser: Browser):
    with running("GridWorld-v0", root_path="/tropism") as server, visiting(browser, server) as page:
        page.goto(f"{server.url}/tropism/")
        expect(page.get_by_role("link", name="Play GridWorld-v0")).to_be_visible()
        page.get_by_role("navigation", name="Main").get_by_role("link", name="API").click()
        expect(page).to_have_url(f"{server.url}/tropism/docs")
        expect(page.locator("h1")).to_have_text("GridWorld-v0")
        assert f"{server.url}/tropism/envs/GridWorld-v0" in snippet(page, "curl")
