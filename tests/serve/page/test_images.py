"""The page in a real browser: pictures that can be clicked, and observations that are images."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.serve.cameras import Camera, HostCamera
from tests.serve.page.browser import expect_step, history, play, visiting
from tests.serve.running import Running, running

from tropism import Session, make
from tropism.client import Client
from tropism.envs.connect_four import ConnectFour
from tropism.serve.session.environment import ServedEnvironment

PIXELS = """async (image) => {
    await image.decode();
    const [width, height] = [image.naturalWidth, image.naturalHeight];
    const canvas = new OffscreenCanvas(width, height).getContext('2d');
    canvas.drawImage(image, 0, 0);
    return [height, width, [...canvas.getImageData(0, 0, width, height).data]];
}"""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    envs = {
        "ConnectFour-v0": ConnectFour(opponent="self"),
        "Camera-v0": Camera(((0, 1), (None, 3))),
        "HostCamera-v0": HostCamera(),
    }
    own = {id: ServedEnvironment(id, env, env.default_params(), "A test's own.") for id, env in envs.items()}
    with running("PixelGridWorld-v0", own=own) as started:
        yield started


def click(page: Page, x: float, y: float) -> None:
    """Click the picture at these fractions of its width and height."""
    box = page.locator(".frame img").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])


@pytest.mark.slow
def test_connect_four_is_played_by_clicking_its_board(page: Page, server: Running):
    view = play(page, server, "ConnectFour-v0", seed=3)
    picture = page.locator(".frame img")
    columns = (3, 0, 6)
    for step, column in enumerate(columns, 1):
        expect(picture).to_have_attribute("data-step", str(step - 1))
        click(page, (column + 0.5) / 7, 0.2)
        expect_step(page, step)
    assert [row["action"] for row in history(server, view)["rows"][1:]] == [{"value": column} for column in columns]
    page.keyboard.press(",")
    expect_step(page, 2, 3)
    click(page, 0.5, 0.5)
    page.keyboard.press("e")
    expect_step(page, 3)
    click(page, 0.5, 0.5)
    expect_step(page, 4)


@pytest.mark.slow
def test_a_full_column_cannot_be_clicked(page: Page, server: Running):
    play(page, server, "ConnectFour-v0", seed=3)
    page.locator(".frame img").hover()
    expect(page.locator(".frame")).to_have_class("frame clickable")
    for step in range(1, 7):
        click(page, 0.5, 0.5)
        expect_step(page, step)
    expect(page.locator(".frame")).to_have_class("frame")
    click(page, 0.5, 0.5)
    page.keyboard.press("2")
    expect_step(page, 7)
    assert history_actions(page, server)[1:] == [*[{"value": 3}] * 6, {"value": 2}]


def history_actions(page: Page, server: Running) -> list[Any]:
    view = str(page.locator(".session").get_attribute("data-view"))
    return [row["action"] for row in history(server, view)["rows"]]


@pytest.mark.slow
def test_cells_of_a_small_picture_are_clicked_on_a_phone(browser: Browser, server: Running):
    with visiting(browser, server, has_touch=True) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        play(page, server, "Camera-v0", seed=1)
        picture = page.locator(".frame img")
        expect(picture).to_have_attribute("data-step", "0")
        box = picture.bounding_box()
        assert box is not None
        shown = min(box["width"] / 6, box["height"] / 4)  # pixels of the screen for one of the picture
        left, top = box["x"] + box["width"] / 2 - 3 * shown, box["y"] + box["height"] / 2 - 2 * shown
        for x, y in ((1, 1), (1, 3), (5, 3), (5, 1)):  # the second cell takes no action
            page.touchscreen.tap(left + x * shown, top + y * shown)
        expect_step(page, 3)
        assert history_actions(page, server)[1:] == [{"value": value} for value in (0, 3, 1)]


def pixels(image: Locator) -> Any:
    height, width, data = image.evaluate(PIXELS)
    return np.array(data, np.uint8).reshape(height, width, 4)[..., :3]


def assert_shows(page: Page, step: int, seen: Any, field: str = "value") -> None:
    image = page.locator(f".images img[data-field={field}]")
    expect(image).to_have_attribute("data-step", str(step))
    assert (pixels(image) == seen).all()
    assert image.evaluate("image => getComputedStyle(image).imageRendering") == "pixelated"


@pytest.mark.slow
def test_an_image_observation_is_shown_live_and_scrubbed(page: Page, server: Running):
    play(page, server, "PixelGridWorld-v0", seed=1)
    with Session(*make("PixelGridWorld-v0")) as session:
        seen = [session.reset(seed=1).obs, *(session.step(action).obs for action in (1, 2, 1))]
    for step, key in enumerate(("ArrowRight", "ArrowDown", "ArrowRight"), 1):
        page.keyboard.press(key)
        expect_step(page, step)
    assert_shows(page, 3, seen[3])
    page.keyboard.press(",")
    page.keyboard.press(",")
    assert_shows(page, 1, seen[1])
    expect(page.get_by_label("Observation", exact=True)).to_contain_text("row 0, column 1")


@pytest.mark.slow
def test_an_image_observation_of_a_recording_is_shown(browser: Browser, tmp_path: Path):
    with running("PixelGridWorld-v0", record=tmp_path) as server:
        with Client(f"{server.url}/envs/PixelGridWorld-v0") as agent:
            seen = [agent.reset(seed=11), *(agent.step({"value": action}) for action in (1, 2, 2))]
        with visiting(browser, server) as page:
            page.goto(f"{server.url}/#/recording/PixelGridWorld-v0/0")
            expect_step(page, 0, 3)
            assert_shows(page, 0, seen[0].observation["value"])
            page.get_by_label("Step of the episode").fill("2")
            assert_shows(page, 2, seen[2].observation["value"])


@pytest.mark.slow
def test_the_images_of_a_host_environment_come_from_its_replies(page: Page, server: Running):
    play(page, server, "HostCamera-v0")
    page.keyboard.press("1")
    expect_step(page, 1)
    assert_shows(page, 1, HostCamera().observation(1))
    page.keyboard.press(",")
    assert_shows(page, 0, HostCamera().observation(0))


@pytest.mark.slow
def test_an_image_replaces_a_missing_picture(page: Page, server: Running):
    page.goto(server.url)
    expect(page.locator("[data-environment=Camera-v0] img")).to_be_visible()
    play(page, server, "Camera-v0", seed=1)
    expect(page.locator(".frame img.coarse")).to_have_attribute("data-step", "0")
    assert_shows(page, 0, Camera().observation(Camera().reset(None, None)[1])["frame"], "frame")
