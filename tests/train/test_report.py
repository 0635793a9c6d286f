"""The report: seeds, version, definitions, plots for light and dark pages, and narrow screens."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.serve.page.browser import browsing

from tropism.drawing import plots
from tropism.train import pictures
from tropism.train.evaluation import Evaluation, SearchResults
from tropism.train.report import ReportImage, write_report


def evaluation(policy: str) -> Evaluation:
    search = SearchResults(np.array([True, False, True]), np.array([0.5, 0.1, 0.7]), np.zeros((100, 3, 2)))
    return Evaluation(policy, 7, np.array([1.0, 0.0, 1.0]), np.array([10, 99, 20]), search)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    evaluations = [evaluation("cast-and-surge"), evaluation("trained agent")]
    found = folder / "found.png"
    plots.draw_light_and_dark(lambda path: pictures.draw_success_over_time(evaluations, path), found)
    facts = {"version": "Tropism 1.2.3", "evaluation": "seeds 7 to 9"}
    shown = [ReportImage(found, "Found by step.", wide=True), ReportImage(folder / "none.png", "Never drawn.")]
    write_report(
        folder / "report.html", "Finding a source", "An agent.", evaluations, shown, facts, f"tropism {'x' * 200}"
    )
    return folder / "report.html"


def test_report_states_seeds_version_and_definitions(report: Path) -> None:
    text = report.read_text()
    assert "seeds 7 to 9" in text
    assert "Tropism 1.2.3" in text
    assert "straight distance from start to end" in text
    assert "Wilson" in text
    assert "Never drawn" not in text


def test_dark_page_shows_the_dark_plot(report: Path) -> None:
    [dark] = re.findall(
        r'<source srcset="data:image/png;base64,[^"]+" media="\(prefers-color-scheme: dark\)">', report.read_text()
    )
    assert dark
    light, dark = (np.mean(read(path)) for path in (report.parent / "found.png", report.parent / "found.dark.png"))
    assert light > 0.8
    assert dark < 0.3


def read(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return imread(path)[..., :3]


@pytest.mark.slow
def test_report_fits_a_phone(report: Path) -> None:
    with browsing() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(report.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390
