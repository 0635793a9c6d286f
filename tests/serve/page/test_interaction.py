"""The page in a real browser: keys and focus, phones, a server that restarts."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.serve.page.browser import expect_step, play, sessions, visiting
from tests.serve.running import Running, labs, running

from tropism.client import Client
from tropism.serve.storage.sqlite import SqliteJournal


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("Pendulum-v1", "Chat-v0", "Echo-v0", own=labs()) as started:
        yield started


@pytest.mark.slow
def test_keys_work_after_the_scrubber_was_clicked(page: Page, server: Running):
    play(page, server, "Lab-v0", seed=1)
    for step in (1, 2):
        page.keyboard.press("0")
        expect_step(page, step)
    page.get_by_label("Step of the episode").click(position={"x": 2, "y": 5})
    expect_step(page, 0, 2)
    page.keyboard.press(".")
    expect_step(page, 1, 2)
    page.keyboard.press("ArrowLeft")  # a focused slider moves by its own keys
    expect_step(page, 0, 2)
    page.keyboard.press("e")
    expect_step(page, 2)
    page.keyboard.press("0")
    expect_step(page, 3)


@pytest.mark.slow
def test_keys_work_after_an_action_slider_or_the_switch_was_used(page: Page, server: Running):
    play(page, server, "Pendulum-v1", seed=1)
    page.get_by_label("torque").click()
    page.keyboard.press(" ")
    expect_step(page, 1)
    switch = page.get_by_role("switch", name="Keyboard shortcuts")
    switch.uncheck()
    switch.check()
    page.keyboard.press(",")
    expect_step(page, 0, 1)
    page.keyboard.press(" ")
    expect(switch).not_to_be_checked()
    expect_step(page, 0, 1)


@pytest.mark.slow
def test_a_session_opens_at_its_top(page: Page, server: Running):
    page.set_viewport_size({"width": 390, "height": 500})
    page.goto(server.url)
    link = page.get_by_role("link", name="Play Chat-v0")
    link.scroll_into_view_if_needed()
    assert page.evaluate("scrollY") > 100
    link.click()
    expect(page.locator("h1")).to_contain_text("Chat-v0")
    expect(page.locator("h1")).to_be_focused()
    assert page.evaluate("scrollY") == 0


@pytest.mark.slow
def test_the_field_keeps_the_focus_after_a_message_was_sent(page: Page, server: Running):
    play(page, server, "Chat-v0", seed=1)
    message = page.locator("textarea")
    message.fill("1")
    page.keyboard.press("Enter")
    expect_step(page, 1)
    expect(message).to_be_focused()
    expect(message).to_have_value("")
    page.keyboard.type("2")
    page.get_by_role("button", name="Send").click()
    expect_step(page, 2)
    expect(message).to_be_focused()
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    expect(page.locator(".stage .words")).to_contain_text("user: 3")


@pytest.mark.slow
def test_the_connection_notice_disappears_when_the_server_is_back(browser: Browser, tmp_path: Path):
    journal = tmp_path / "journal"
    with ExitStack() as stack:
        with running(own=labs(), journal=SqliteJournal(journal)) as server:
            page = stack.enter_context(visiting(browser, server, expected="ERR_CONNECTION"))
            play(page, server, "Lab-v0", seed=1)
            page.keyboard.press("0")
            expect_step(page, 1)
        page.keyboard.press("0")
        expect(page.locator("#state")).to_have_text("Server not reached")
        expect(page.locator("#notice")).to_have_text("the server cannot be reached")
        stack.enter_context(running(own=labs(), journal=SqliteJournal(journal), port=server.port))
        expect(page.locator("#state")).to_have_text("Connected")
        expect(page.locator("#notice")).to_be_hidden(timeout=2000)
        page.keyboard.press("0")
        expect_step(page, 2)
        expect(page.locator(".stage .words")).to_contain_text("[1. 2.]")


@pytest.mark.slow
def test_a_view_that_failed_is_reloaded_when_the_server_is_back(browser: Browser):
    with ExitStack() as stack:
        with running(own=labs()) as server:
            page = stack.enter_context(visiting(browser, server, expected="ERR_CONNECTION"))
            page.goto(f"{server.url}/#/recordings")
            expect(page.locator("h1")).to_have_text("Recordings")
        page.evaluate("location.hash = '#/sessions'")
        page.evaluate("location.hash = '#/'")
        expect(page.locator("h1")).to_have_text("Something went wrong")
        stack.enter_context(running(own=labs(), port=server.port))
        expect(page.locator("h1")).to_have_text("Environments")


@pytest.mark.slow
def test_a_watcher_follows_a_session_across_a_restart(browser: Browser, tmp_path: Path):
    journal = tmp_path / "journal"
    with ExitStack() as stack:
        with running(own=labs(), journal=SqliteJournal(journal)) as server:
            agent = stack.enter_context(Client(f"{server.url}/envs/Lab-v0"))
            agent.reset(seed=1)
            view = sessions(server)[0]["view"]
            page = stack.enter_context(visiting(browser, server, expected="Failed to load resource"))
            page.goto(f"{server.url}/#/session/{view}")
            expect_step(page, 0)
        expect(page.locator("#state")).to_have_text("Server not reached")
        stack.enter_context(running(own=labs(), journal=SqliteJournal(journal), port=server.port))
        with page.expect_response(lambda reply: "history" in reply.url and reply.status == 404):
            pass  # the watcher reconnects before the agent
        agent.step({"value": 0})
        expect_step(page, 1)
