"""Take the screenshots of the page for docs/serve.md, in Chromium, while agents play. Run by `make docs`."""

import io
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax import random
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tropism import Session, make
from tropism.client import Client
from tropism.plume.strategies import CastAndSurge
from tropism.serve.app import App
from tropism.serve.server import Server, load_environments
from tropism.serve.settings import Settings

HERE = Path(__file__).parent / "pictures"
IDS = (
    *("PlumeNavPuffs-v0", "PlumeNavMeander-v0", "ConnectFour-v0", "CartPole-v1", "Pendulum-v1", "Chat-v0"),
    *("PlumeNav-v0", "Acrobot-v1", "MountainCar-v0", "GridWorld-v0", "Echo-v0"),
)
PUFFS_STRATEGY = CastAndSurge(
    make("PlumeNavPuffs-v0")[0].motion, smell=2, wind=(0, 1), apparent=True, threshold=1e-4, width=6.0
)
KEYS = ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft")
PUFFS_SEED, MEANDER_SEED = 17, 21  # seeds of episodes that find the source
SIZE = {"width": 1280, "height": 800}
COMPILING = 120_000  # milliseconds


@contextmanager
def serving() -> Iterator[str]:
    """Run a server until the block ends; yields its address."""
    urls: list[str] = []
    started = threading.Event()
    server = Server(App(load_environments(IDS), Settings(port=0)), lambda url: (urls.append(url), started.set()))
    thread = threading.Thread(target=server.run)
    thread.start()
    started.wait()
    try:
        yield urls[0]
    finally:
        server.should_exit = True
        thread.join()


def actions(id: str, strategy: CastAndSurge, seed: int) -> Iterator[Any]:
    """The actions of a strategy in the episode of this seed, to its end."""
    with Session(*make(id)) as session:
        timestep, memory = session.reset(seed=seed), strategy.init(random.key(seed))
        while not (timestep.terminated or timestep.truncated):
            action, memory = strategy.act(random.key(session.step_count), memory, jnp.asarray(timestep.obs))
            yield session.action_space.to_json(action)
            timestep = session.step(session.action_space.coerce(action))


def open_tab(browser: Browser, scheme: Any) -> Page:
    page = browser.new_page(viewport=SIZE, device_scale_factor=1, color_scheme=scheme)
    page.set_default_timeout(COMPILING)
    return page


def save(page: Page, path: Path) -> None:
    print(path.name, file=sys.stderr)
    Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(path, optimize=True)


def gallery(browser: Browser, url: str, out: Path) -> None:
    page = open_tab(browser, "light")
    page.goto(url)
    page.wait_for_selector(".sessions .button")
    for card in range(6):
        expect(page.locator(".portrait").nth(card).locator("> *")).to_be_visible(timeout=COMPILING)
    page.wait_for_timeout(500)  # the pictures fade in
    save(page, out / "page_gallery.png")


def play(browser: Browser, url: str, out: Path, seed: int) -> None:
    """Search a plume by keyboard and stop before the source."""
    page = open_tab(browser, "dark")
    page.goto(f"{url}/#/play/PlumeNavMeander-v0")
    page.locator("#seed").fill(str(seed))
    page.keyboard.press("Enter")
    expect(page.locator("#seed")).to_have_value(str(seed))
    page.locator("h1").focus()
    chosen = list(actions("PlumeNavMeander-v0", CastAndSurge(), seed))[:-12]
    for step, action in enumerate(chosen, 1):
        page.keyboard.press(KEYS[action])
        expect(page.locator(".place")).to_have_text(f"{step} / {step}")
    expect(page.locator(".frame img")).to_have_attribute("data-step", str(len(chosen)), timeout=COMPILING)
    save(page, out / "page_play.png")


def scrub(browser: Browser, url: str, out: Path, view: str, step: int) -> None:
    page = open_tab(browser, "light")
    page.goto(f"{url}/#/session/{view}")
    page.wait_for_selector(".lane")
    page.get_by_label("Step of the episode").fill(str(step))
    expect(page.locator(".frame img")).to_have_attribute("data-step", str(step), timeout=COMPILING)
    save(page, out / "page_scrub.png")


def watch_id(url: str, browser: Browser, client: Client) -> str:
    """The watch id of this client's session."""
    episode = client.state().episode_id
    page = browser.new_page()
    listed = page.request.get(f"{url}/sessions").json()["sessions"]
    page.close()
    return next(row["view"] for row in listed if row["episode_id"] == episode)


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with ExitStack() as stack:
        url = stack.enter_context(serving())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        stack.callback(browser.close)
        agents = [stack.enter_context(Client(f"{url}/envs/{id}")) for id in ("CartPole-v1", "ConnectFour-v0")]
        for agent in agents:
            agent.reset(seed=1)
            for number in range(5):
                agent.step({"value": number % 2})
        searcher = stack.enter_context(Client(f"{url}/envs/PlumeNavPuffs-v0"))
        searcher.reset(seed=PUFFS_SEED)
        replies = [
            searcher.step({"value": action}) for action in actions("PlumeNavPuffs-v0", PUFFS_STRATEGY, PUFFS_SEED)
        ]
        play(browser, url, out, MEANDER_SEED)
        scrub(browser, url, out, watch_id(url, browser, searcher), len(replies) * 3 // 4)
        gallery(browser, url, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
