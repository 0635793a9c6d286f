"""The page in a real browser: play, scrub, fork and watch, by pointer and by keyboard."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.serve.page.browser import expect_step, history, play, sessions, visiting
from tests.serve.running import Running, labs, running

from tropism import Session, make
from tropism.client import Client
from tropism.record import Reader

IDS = ("PlumeNav-v0", "ConnectFour-v0", "Pendulum-v1", "Echo-v0")
TOKEN = "open-sesame"
ARROWS = {"ArrowUp": 0, "ArrowRight": 1, "ArrowDown": 2, "ArrowLeft": 3}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(*IDS, own=labs()) as started:
        yield started


@pytest.mark.slow
def test_the_gallery_shows_a_picture_or_text_of_every_environment(page: Page, server: Running):
    page.goto(server.url)
    for id in IDS:
        card = page.locator(f"[data-environment={id}]")
        expect(card.get_by_role("link", name=f"Play {id}")).to_be_visible()
        card.scroll_into_view_if_needed()
        expect(card.locator("pre" if id == "Echo-v0" else "img").first).to_be_visible()
    widths = page.eval_on_selector_all(".portrait img", "images => images.map(image => image.naturalWidth)")
    assert len(widths) == 3
    assert min(widths) > 300
    page.locator("[data-environment=Pendulum-v1] summary").click()
    expect(page.locator("[data-environment=Pendulum-v1] .schema pre").first).to_contain_text('"title": "torque"')


@pytest.mark.slow
def test_connect_four_is_played_to_its_end_by_buttons(page: Page, server: Running):
    view = play(page, server, "ConnectFour-v0", seed=3)
    columns = page.get_by_role("group", name="Actions").get_by_role("button")
    expect(columns).to_have_count(7)
    played = 0
    while page.locator(".session.over").count() == 0:
        columns.nth(next(i for i in range(7) if columns.nth(i).is_enabled())).click()
        played += 1
        expect_step(page, played)
    expect(page.locator(".banner")).to_contain_text("The episode has ended: return")
    for column in range(7):
        expect(columns.nth(column)).to_be_disabled()
    body = history(server, view)
    assert (body["lifecycle"], body["step_count"]) == ("terminated", played)


@pytest.mark.slow
def test_connect_four_is_played_to_its_end_by_keyboard(page: Page, server: Running):
    play(page, server, "ConnectFour-v0", seed=4)
    columns = page.get_by_role("group", name="Actions").get_by_role("button")
    played = 0
    while page.locator(".session.over").count() == 0:
        page.keyboard.press(str(next(i for i in range(6, -1, -1) if columns.nth(i).is_enabled())))
        played += 1
        expect_step(page, played)
    expect(page.locator(".banner")).to_contain_text("ended")
    page.keyboard.press("r")
    expect_step(page, 0)
    expect(columns.first).to_be_enabled()


def test_a_plume_is_searched_by_arrow_keys_and_scrubbed(page: Page, server: Running):
    play(page, server, "PlumeNav-v0", seed=11)
    with Session(*make("PlumeNav-v0")) as session:
        session.reset(seed=11)
        texts = [session.describe()]
        for step, key in enumerate([*ARROWS] * 3, 1):
            page.keyboard.press(key)
            expect_step(page, step)
            session.step(ARROWS[key])
            texts.append(session.describe())
    words = page.get_by_label("Observation", exact=True)
    expect(words).to_have_text(texts[12])
    expect(page.locator(".frame img")).to_have_attribute("data-step", "12")
    for _ in range(5):
        page.keyboard.press(",")
    expect_step(page, 7, 12)
    expect(words).to_have_text(texts[7])
    expect(page.locator(".frame img")).to_have_attribute("data-step", "7")
    expect(page.get_by_role("button", name="up", exact=False).first).to_be_disabled()
    trail = str(page.locator(".trail .ahead").get_attribute("points")).split()
    assert len(trail) == 6
    slider = page.get_by_label("Step of the episode")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect_step(page, 6, 12)
    assert cursor(page) == pytest.approx(6 / 20 * 600)
    page.keyboard.press("Home")
    expect(words).to_have_text(texts[0])
    page.get_by_role("button", name="Play the episode").click()
    expect_step(page, 12)
    expect(words).to_have_text(texts[12])


def cursor(page: Page) -> float:
    return float(str(page.locator(".lane .cursor").first.get_attribute("x1")))


@pytest.mark.slow
def test_a_fork_from_an_earlier_step_does_not_affect_its_parent(page: Page, server: Running):
    parent = play(page, server, "PlumeNav-v0", seed=5)
    for step, key in enumerate(["ArrowUp"] * 4 + ["ArrowRight"] * 4, 1):
        page.keyboard.press(key)
        expect_step(page, step)
    before = history(server, parent)["rows"]
    for _ in range(5):
        page.keyboard.press(",")
    expect_step(page, 3, 8)
    page.get_by_role("button", name="Fork here").click()
    expect_step(page, 3)
    child = str(page.locator(".session").get_attribute("data-view"))
    assert child != parent
    page.keyboard.press("ArrowLeft")
    expect_step(page, 4)
    after = history(server, child)["rows"]
    assert after[:4] == before[:4]
    assert after[4]["action"] == {"value": ARROWS["ArrowLeft"]}
    assert history(server, parent)["rows"] == before
    page.goto(f"{server.url}/#/session/{parent}")
    expect_step(page, 8)


@pytest.mark.slow
def test_an_agents_session_can_be_watched_but_not_stepped(page: Page, server: Running):
    with Client(f"{server.url}/envs/PlumeNav-v0") as agent:
        agent.reset(seed=2)
        agent.step({"value": 1})
        page.goto(f"{server.url}/#/sessions")
        view = next(row["view"] for row in sessions(server) if row["attached"])
        row = page.locator(f"[data-view='{view}']")
        expect(row).to_contain_text("PlumeNav-v0")
        row.get_by_role("link", name="Watch").click()
        expect_step(page, 1)
        expect(page.locator(".session")).to_have_attribute("data-mode", "watch")
        expect(page.get_by_role("group", name="Actions")).to_have_count(0)
        body = [agent.step({"value": 0}).text for _ in range(6)]
        expect_step(page, 7)
        expect(page.get_by_label("Observation", exact=True)).to_have_text(str(body[-1]))
        expect(page.locator(".frame img")).to_have_attribute("data-step", "7")
        page.keyboard.press(",")
        expect_step(page, 6, 7)
        agent.step({"value": 0})
        expect_step(page, 6, 8)
        page.keyboard.press("f")
        expect(page.locator(".session")).to_have_attribute("data-mode", "play")
        page.keyboard.press("ArrowDown")
        expect_step(page, 7)
        assert agent.state().step_count == 8
        agent.reset(seed=9)
        page.goto(f"{server.url}/#/session/{view}")
        expect_step(page, 0)


@pytest.mark.slow
def test_a_watcher_sees_that_the_session_was_closed(browser: Browser, server: Running):
    with visiting(browser, server, expected="404") as page:
        with Client(f"{server.url}/envs/PlumeNav-v0") as agent:
            agent.reset(seed=3)
            view = next(row["view"] for row in sessions(server) if row["attached"])
            page.goto(f"{server.url}/#/session/{view}")
            expect(page.locator(".banner")).to_contain_text("Live")
        expect(page.locator(".banner")).to_contain_text("This session was closed")
        expect(page.locator("#notice")).to_be_hidden()


@pytest.mark.slow
def test_an_action_by_slider_and_as_text(page: Page, server: Running):
    view = play(page, server, "Pendulum-v1")
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    expect_step(page, 1)
    page.get_by_label("torque").focus()
    page.keyboard.press("End")
    page.get_by_role("button", name="Step", exact=False).last.click()
    expect_step(page, 2)
    page.get_by_label("The action in words").fill("-1.5")
    page.keyboard.press("Enter")
    expect_step(page, 3)
    actions = [row["action"] for row in history(server, view)["rows"][1:]]
    assert actions == [{"value": [pytest.approx(0.4)]}, {"value": [2]}, {"text": "-1.5"}]
    page.get_by_label("The action in words").fill("as you like")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("as you like")
    expect_step(page, 3)


@pytest.mark.slow
def test_a_text_environment_is_played_by_a_form(page: Page, server: Running):
    play(page, server, "Echo-v0")
    expect(page.locator(".stage .words")).to_contain_text("Nothing to hear yet")
    page.locator("textarea").fill("hello")
    page.keyboard.press("Enter")
    expect_step(page, 1)
    expect(page.locator(".stage .words")).to_contain_text("hello")
    expect(page.locator(".facts")).to_contain_text("0.5")
    page.get_by_role("button", name="One step back").click()
    expect(page.locator(".stage .words")).to_contain_text("Nothing to hear yet")


@pytest.mark.slow
def test_an_environment_that_cannot_be_replayed_can_be_played(page: Page, server: Running):
    play(page, server, "Unwritable-v0")
    page.keyboard.press("0")
    expect_step(page, 1)
    page.keyboard.press("3")
    expect_step(page, 2)
    expect(page.locator(".banner")).to_contain_text("ended: return 2")
    expect(page.get_by_role("button", name="Fork here")).to_be_disabled()
    page.keyboard.press("r")
    expect_step(page, 0)


@pytest.mark.slow
def test_everything_can_be_reached_with_the_keyboard_alone(page: Page, server: Running):
    page.goto(server.url)
    expect(page.get_by_role("link", name="Play ConnectFour-v0")).to_be_visible()
    press_until(page, "Tab", "document.activeElement.getAttribute('aria-label') === 'Play ConnectFour-v0'")
    outline = page.evaluate("getComputedStyle(document.activeElement).outline")
    assert "solid 2px" in outline, "where the focus is can be seen"
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("ConnectFour-v0")
    page.keyboard.press("3")
    expect_step(page, 1)
    press_until(page, "Tab", "document.activeElement.dataset.action === '2'")
    page.keyboard.press("Enter")
    expect_step(page, 2)
    press_until(page, "Shift+Tab", "document.activeElement.type === 'range'")
    page.keyboard.press("ArrowLeft")
    expect_step(page, 1, 2)
    press_until(page, "Tab", "document.activeElement.id === 'fork'")
    page.keyboard.press("Enter")
    expect_step(page, 1)
    press_until(page, "Shift+Tab", "document.activeElement.textContent.startsWith('Sessions')")
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Live sessions")).to_be_visible()


def press_until(page: Page, key: str, condition: str) -> None:
    for _ in range(60):
        if page.evaluate(condition):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} never led to where {condition}")


@pytest.mark.slow
def test_dark_and_light_follow_the_system_until_one_is_chosen(page: Page, server: Running):
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.emulate_media(color_scheme="light")
    page.goto(server.url)
    expect(page.locator(".card").first).to_be_visible()
    light = background()
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = background()
    assert light != dark
    page.get_by_role("button", name="Switch to light").click()
    assert background() == light
    page.reload()
    expect(page.locator(".card").first).to_be_visible()
    assert background() == light


@pytest.mark.slow
def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, server: Running):
    with visiting(browser, server) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        for place in ("", "#/sessions", "#/play/PlumeNav-v0", "#/play/Echo-v0"):
            page.goto(f"{server.url}/{place}")
            expect(page.locator("h1")).to_be_visible()
            if "play" in place:
                expect(page.locator("h1")).to_contain_text(place.removeprefix("#/play/"))
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_the_page_asks_for_the_token(browser: Browser):
    with (
        running("ConnectFour-v0", tokens=(TOKEN,)) as server,
        visiting(browser, server, expected="401 (Unauthorized)") as page,
    ):
        page.goto(server.url)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("This server needs a token")
        page.get_by_label("Token", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The token is not valid on this server")
        page.get_by_label("Token", exact=True).fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("[data-environment=ConnectFour-v0] img")).to_be_visible()
        page.get_by_role("link", name="Play ConnectFour-v0").click()
        expect(page.locator("h1")).to_contain_text("ConnectFour-v0")
        page.keyboard.press("3")
        expect_step(page, 1)
        expect(page.locator(".frame img")).to_have_attribute("data-step", "1")
        page.keyboard.press(",")
        page.keyboard.press("f")
        expect_step(page, 0)
        assert TOKEN not in page.url
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        expect(page.locator("#state")).to_have_text(re.compile("Connected"))


@pytest.mark.slow
def test_a_recorded_episode_is_opened_scrubbed_forked_and_played_on(browser: Browser, tmp_path: Path):
    with running("PlumeNav-v0", "Echo-v0", tokens=(TOKEN,), record=tmp_path) as server:
        with Client(f"{server.url}/envs/PlumeNav-v0", token=TOKEN) as agent:
            body = [agent.reset(seed=11).text, *(agent.step({"value": number % 4}).text for number in range(12))]
        with visiting(browser, server, extra_http_headers={"Authorization": f"Bearer {TOKEN}"}) as page:
            page.goto(f"{server.url}/#/recordings")
            row = page.get_by_role("table", name="Recordings of PlumeNav-v0").locator("[data-number='0']")
            expect(row).to_contain_text("not ended")
            row.get_by_role("link", name="Open episode 0").click()
            expect(page.locator(".session")).to_have_attribute("data-mode", "recorded")
            expect_step(page, 0, 12)
            words, picture = page.get_by_label("Observation", exact=True), page.locator(".frame img")
            expect(words).to_have_text(str(body[0]))
            page.get_by_label("Step of the episode").fill("7")
            expect_step(page, 7, 12)
            expect(words).to_have_text(str(body[7]))
            expect(picture).to_have_attribute("data-step", "7")
            assert len(str(page.locator(".trail .ahead").get_attribute("points")).split()) == 6
            expect(page.get_by_role("group", name="Actions")).to_have_count(0)
            page.get_by_role("button", name="Fork here").click()
            expect(page.locator(".session")).to_have_attribute("data-mode", "play")
            expect_step(page, 7)
            page.keyboard.press("ArrowDown")
            expect_step(page, 8)
            expect(picture).to_have_attribute("data-step", "8")
            page.goto(f"{server.url}/#/recordings")
            expect(page.locator("[data-number='1']")).to_contain_text("fork of #0 at 7")
            page.set_viewport_size({"width": 390, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
    fork = Reader(tmp_path / "PlumeNav-v0")[1]
    assert fork.actions.tolist() == [0, 1, 2, 3, 0, 1, 2, ARROWS["ArrowDown"]]
