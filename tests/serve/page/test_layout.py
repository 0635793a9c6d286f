"""The page in a real browser: layout without overlaps."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.serve.page.browser import expect_step, play
from tests.serve.running import Running, running

PHONES = [(390, 844), (390, 664)]  # the screen, without and with the browser's bars


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running("PlumeNav-v0", "CartPole-v1", "ConnectFour-v0", "Pendulum-v1") as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("id", ["PlumeNav-v0", "CartPole-v1", "ConnectFour-v0"])
def test_on_a_phone_the_picture_and_the_actions_are_visible_together(page: Page, server: Running, id: str):
    page.set_viewport_size({"width": 390, "height": 844})
    play(page, server, id)
    picture, buttons = page.locator(".frame img"), page.get_by_role("group", name="Actions").get_by_role("button")
    expect(picture).to_have_attribute("data-step", "0")
    for width, height in PHONES:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("scrollY") == 0
        assert box(picture)[2:] >= (200, 150)
        for element in (picture, *buttons.all()):
            left, top, wide, high = box(element)
            assert left >= 0
            assert left + wide <= width
            assert top >= 0
            assert top + high <= height


@pytest.mark.slow
def test_the_labels_of_a_chart_are_beside_its_trace(page: Page, server: Running):
    play(page, server, "Pendulum-v1", seed=1)
    for step in (1, 2):
        page.keyboard.press(" ")
        expect_step(page, step)
    lanes = page.locator(".lane")
    expect(lanes).to_have_count(4)
    for width, height in ((1280, 800), PHONES[0]):
        page.set_viewport_size({"width": width, "height": height})
        for lane in lanes.all():
            assert_beside(lane.locator("span").all(), lane.locator("svg"))


def assert_beside(labels: list[Locator], plot: Locator) -> None:
    left, top, wide, high = box(plot)
    assert wide > 60
    assert [label.text_content() for label in labels].count("") == 0
    for label in labels:
        x, y, _, h = box(label)
        assert x >= left + wide or y + h <= top or y >= top + high


def box(element: Locator) -> tuple[float, float, float, float]:
    """Left, top, width and height in the viewport."""
    found = element.bounding_box()
    assert found is not None
    return found["x"], found["y"], found["width"], found["height"]
