"""The page in a real browser: leaving and returning, screen readers, and keys."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.serve.page.browser import expect_step, play, visiting
from tests.serve.running import Running, labs, running, until


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("PlumeNav-v0", "Pendulum-v1", "Echo-v0", own=labs()) as started:
        yield started


@pytest.mark.slow
def test_an_evicted_session_is_resumed(browser: Browser):
    with running("GridWorld-v0", idle_timeout=0.2) as server, visiting(browser, server, expected="404") as page:
        view = play(page, server, "GridWorld-v0")
        page.goto(f"{server.url}/#/recordings")
        until(lambda: len(server.app.sessions) == 0)
        page.goto(f"{server.url}/#/session/{view}")
        expect(page.locator(".session")).to_have_attribute("data-mode", "play")
        expect_step(page, 0)


@pytest.mark.slow
def test_a_session_is_closed_if_the_user_leaves_before_it_opens(page: Page, server: Running):
    before = len(server.app.sessions)
    page.goto(server.url)
    page.route("**/reset", lambda route: (page.evaluate("location.hash = '#/sessions'"), route.continue_()))
    with page.expect_response("**/close") as closed:
        page.evaluate("location.hash = '#/play/Echo-v0'")
    assert closed.value.ok
    assert page.url.endswith("#/sessions")
    assert len(server.app.sessions) == before


@pytest.mark.slow
def test_pausing_and_playing_again_runs_one_loop(page: Page, server: Running):
    view = play(page, server, "PlumeNav-v0", seed=1)
    for step in range(20):
        page.keyboard.press("ArrowLeft")
        expect_step(page, step + 1)
    page.keyboard.press("p")
    for _ in range(6):
        page.keyboard.press("p")
    begin = page.evaluate("performance.now()")
    expect_step(page, 20)
    assert page.evaluate("performance.now()") - begin > 1200, view


@pytest.mark.slow
def test_the_requested_seed_stays_in_its_field(page: Page, server: Running):
    play(page, server, "Lab-v0", seed=31)
    page.locator("#seed").fill("32")
    page.get_by_role("button", name="Reset").click()
    expect(page.locator(".hidden[aria-live]")).to_have_text("A new episode begins.")
    expect(page.locator("#seed")).to_have_value("32")


@pytest.mark.slow
def test_long_words_wrap(page: Page, server: Running):
    page.set_viewport_size({"width": 390, "height": 844})
    play(page, server, "PlumeNav-v0", seed=1)
    fits = "box => box.scrollHeight <= box.clientHeight && box.scrollWidth <= box.clientWidth"
    page.locator(".words").evaluate("box => (box.textContent = 'a row of a board\\n'.repeat(14))")
    assert page.locator(".words").evaluate(fits)
    page.goto(server.url)
    card = page.locator(".card").first
    card.locator("h3 a, p").evaluate_all("all => all.forEach((each) => (each.textContent = 'word'.repeat(99)))")
    assert card.evaluate(fits)


@pytest.mark.slow
def test_a_running_episode_is_not_reset_by_one_key(page: Page, server: Running):
    play(page, server, "PlumeNav-v0", seed=1)
    page.keyboard.press("ArrowLeft")
    expect_step(page, 1)
    page.keyboard.press("r")
    expect(page.get_by_role("alert")).to_contain_text("press r again")
    expect_step(page, 1)
    page.keyboard.press("r")
    expect_step(page, 0)


@pytest.mark.slow
def test_single_key_shortcuts_can_be_turned_off(page: Page, server: Running):
    play(page, server, "PlumeNav-v0", seed=1)
    page.get_by_role("switch", name="Keyboard shortcuts").uncheck()
    page.locator("h1").focus()
    page.keyboard.press("ArrowLeft")
    expect_step(page, 1)
    for key in (",", "0", "r"):
        page.keyboard.press(key)
    page.keyboard.press("ArrowLeft")
    expect_step(page, 2)
    page.reload()
    switch = page.get_by_role("switch", name="Keyboard shortcuts")
    expect(switch).not_to_be_checked()
    switch.check()
    page.locator("h1").focus()
    page.keyboard.press(",")
    expect_step(page, 1, 2)


@pytest.mark.slow
def test_keys_that_scroll_or_open_something_do_not_step(page: Page, server: Running):
    play(page, server, "Pendulum-v1", seed=1)
    for selector in (".right summary >> nth=0", ".bar a >> nth=0", "pre.words"):
        page.locator(selector).focus()
        page.keyboard.press(" ")
        page.keyboard.press("ArrowLeft")
    page.locator("h1").focus()
    page.keyboard.press(" ")
    expect_step(page, 1)


@pytest.mark.slow
def test_live_regions_change_once(page: Page, server: Running):
    play(page, server, "PlumeNav-v0", seed=1)
    assert page.locator("output").count() == 0
    page.evaluate("""window.changes = 0;
        for (const box of document.querySelectorAll('#state, #notice'))
            new MutationObserver((all) => (window.changes += all.filter((each) => each.type !== 'attributes').length))
                .observe(box, { childList: true, subtree: true, characterData: true });""")
    page.keyboard.press("ArrowLeft")
    expect_step(page, 1)
    assert page.evaluate("window.changes") == 0
    toggle = page.get_by_role("button", name="Play the episode")
    expect(toggle).to_have_attribute("title", "Play the episode")


@pytest.mark.slow
def test_an_error_page_has_a_title_and_the_focus(browser: Browser, server: Running):
    with visiting(browser, server, expected="404") as page:
        page.goto(f"{server.url}/#/session/nobody")
        expect(page.locator("h1")).to_be_focused()
        expect(page).to_have_title("Error · Tropism")
