"""The API reference in a real browser: it looks like the rest of the page, and describes every environment."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.serve.page.browser import visiting
from tests.serve.running import Running, labs, running

from tropism.serve.server import load_environments

TOKEN = "open-sesame"
LOOK = """() => {
    const style = (name) => getComputedStyle(document.querySelector(name));
    return [style('body').backgroundColor, style('body').color, style('body').fontFamily, style('h1').fontSize,
        document.querySelector('.bar').getBoundingClientRect().height];
}"""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(own=labs() | load_environments(["Echo-v0"])) as started:
        yield started


@pytest.mark.slow
def test_the_reference_looks_like_the_rest(page: Page, server: Running):
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        looks: list[object] = []
        for place in ("#/sessions", "docs"):
            page.goto(f"{server.url}/{place}")
            expect(page.locator("h1")).to_be_visible()
            expect(page.locator("#state")).to_have_text("Connected")
            looks.append(page.evaluate(LOOK))
        assert looks[0] == looks[1]
    main = page.get_by_role("navigation", name="Main")
    expect(main.locator("[aria-current]")).to_have_text("API")
    page.get_by_role("button", name="Switch to light").click()
    main.get_by_role("link", name="Sessions").click()
    expect(page.locator("h1")).to_have_text("Live sessions")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="API").click()
    expect(page.locator("h1")).to_have_text("Lab-v0")


@pytest.mark.slow
def test_the_reference_of_the_environment_in_the_url_is_shown(page: Page, server: Running):
    page.goto(f"{server.url}/envs/Echo-v0/docs")
    expect(page.locator("h1")).to_have_text("Echo-v0")
    expect(page.locator("summary", has_text="/envs/Echo-v0/step")).to_be_visible()


@pytest.mark.slow
def test_the_reference_of_each_environment_is_a_click_away(page: Page, server: Running):
    page.goto(f"{server.url}/docs")
    expect(page.locator("h1")).to_have_text("Lab-v0")
    menu = page.get_by_role("navigation", name="Environments")
    expect(menu.locator("[aria-current]")).to_have_text("Lab-v0")
    menu.get_by_role("link", name="Echo-v0").click()
    expect(page.locator("h1")).to_have_text("Echo-v0")
    expect(menu.locator("[aria-current]")).to_have_text("Echo-v0")
    step = page.locator(".operation", has_text="/envs/Echo-v0/step")
    step.locator("summary").click()
    expect(step.locator("pre").first).to_contain_text('"message"')


@pytest.mark.slow
def test_the_reference_fits_a_phone(page: Page, server: Running):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/docs#/Echo-v0")
    expect(page.locator("h1")).to_have_text("Echo-v0")
    for summary in page.locator(".operation summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = [page.locator(place).bounding_box() for place in (".bar", ".reference nav", "h1", ".addresses")]
    tops = [box["y"] for box in boxes if box is not None]
    assert tops == sorted(tops)
    assert boxes[1] is not None
    assert boxes[1]["y"] + boxes[1]["height"] <= tops[2]


@pytest.mark.slow
def test_the_reference_asks_for_the_token(browser: Browser):
    with running(own=labs(), tokens=(TOKEN,)) as server, visiting(browser, server, expected="401") as page:
        page.goto(f"{server.url}/docs")
        page.get_by_label("Token", exact=True).fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Lab-v0")
        page.get_by_role("link", name="Stuck-v0").click()
        expect(page.locator("h1")).to_have_text("Stuck-v0")
